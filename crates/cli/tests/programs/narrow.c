/* A 32-bit program that needs the dynamic linker, and no library. */
static int call(int number, int first, const void *second, int third)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(second), "d"(third) : "memory");
    return result;
}

void _start(void)
{
    call(4, 1, "32 bits\n", 8);
    for (;;)
        call(1, 0, 0, 0);
}
