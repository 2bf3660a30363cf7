// Each of glibc's lock functions that we replace, in each version that glibc has: every caller gets ours, and nobody gets
// one that we don't have. The list is libc's own symbol table. Without our library, callers get glibc's.
// bare: lib_bare
// bare: lib_bare_cond
#include "check.h"
#include <elf.h>
#include <link.h>

static void *preloaded; // where our library lies, NULL without it
static void *libc_base;

static void *object_of(const void *address)
{
    Dl_info info;
    return address && dladdr(address, &info) ? info.dli_fbase : NULL;
}

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with)
{
    size_t length = strlen(text), tail = strlen(with);
    return length >= tail && strcmp(text + length - tail, with) == 0;
}

/* Do we replace it? The name's pattern decides, so that the test notices a new function of a newer glibc that we lack. */
static bool is_ours(const char *name, const char *version)
{
    if (strcmp(name, "prctl") == 0)
        return true;
#ifdef __x86_64__
    if (strcmp(name, "dlopen") == 0 || strcmp(name, "dlmopen") == 0)
        return true;
#endif
    // The functions that take and give. The others stay glibc's own, and so do the semaphores themselves.
    const char *semaphores[] = {"sem_wait",      "sem_trywait", "sem_timedwait",
                                "sem_clockwait", "sem_post",    "sem_destroy"};
    for (size_t i = 0; i < sizeof semaphores / sizeof *semaphores; i++)
        if (strcmp(name, semaphores[i]) == 0)
            return true;
    const char *plain = starts(name, "__") ? name + 2 : name;
    const char *families[] = {"pthread_mutex_", "pthread_cond_", "pthread_rwlock_",
                              "pthread_spin_",  "mtx_",          "cnd_"};
    // Functions that leave zeroes, or an object of a kind that is not ours.
    const char *glibcs[] = {"_init",          "_consistent",    "_consistent_np", "prioceiling",
                            "rwlock_destroy", "spin_destroy"};
    bool is = false;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        is = is || starts(plain, families[i]);
    for (size_t i = 0; i < sizeof glibcs / sizeof *glibcs; i++)
        is = is && !ends(plain, glibcs[i]);
    return is;
}

static void expect_from(const char *how, const char *name, const char *version, const void *found)
{
    void *want = preloaded && is_ours(name, version) ? preloaded : libc_base;
    if (object_of(found) == want)
        return;
    printf("FAILED %s %s@%s: %s\n", how, name, version, found ? "another's" : "none");
    failures++;
}

static const void *entry(const struct link_map *map, int64_t tag)
{
    for (const ElfW(Dyn) *at = map->l_ld; at->d_tag != DT_NULL; at++)
        if (at->d_tag == tag)
            return (const void *)(at->d_un.d_ptr < map->l_addr ? at->d_un.d_ptr + map->l_addr
                                                               : at->d_un.d_ptr);
    return NULL;
}

static int symbols(const uint32_t *table)
{
    uint32_t buckets = table[0], first = table[1], last = 0;
    const uint32_t *heads = table + 4 + table[2] * 2, *chains = heads + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        if (heads[i] > last)
            last = heads[i];
    while (!(chains[last - first] & 1))
        last++;
    return last + 1;
}

static const char *version_of(const ElfW(Verdef) *at, const char *strings, unsigned index)
{
    for (;; at = (const void *)((const char *)at + at->vd_next)) {
        const ElfW(Verdaux) *name = (const void *)((const char *)at + at->vd_aux);
        if (at->vd_ndx == index)
            return strings + name->vda_name;
        if (!at->vd_next)
            return NULL;
    }
}

static void all_of_libc(void)
{
    struct link_map *map = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    CHECK(map != NULL);
    const ElfW(Sym) *table = entry(map, DT_SYMTAB);
    const char *strings = entry(map, DT_STRTAB);
    const uint16_t *versions = entry(map, DT_VERSYM);
    int count = symbols(entry(map, DT_GNU_HASH)), seen = 0;
    for (int i = 1; i < count; i++) {
        const char *name = strings + table[i].st_name;
        const char *version = version_of(entry(map, DT_VERDEF), strings, versions[i] & 0x7fff);
        if (!table[i].st_shndx || !version || ELF64_ST_TYPE(table[i].st_info) != STT_FUNC)
            continue;
        bool is_lock = starts(name, "pthread_") || starts(name, "__pthread_") ||
                       starts(name, "mtx_") || starts(name, "cnd_") || starts(name, "sem_");
        if (!is_lock && !is_ours(name, version))
            continue;
        seen += is_ours(name, version);
        expect_from("dlvsym", name, version, dlvsym(RTLD_DEFAULT, name, version));
        if (!(versions[i] & 0x8000))
            expect_from("dlsym", name, version, dlsym(RTLD_DEFAULT, name));
    }
    CHECK(seen >= 50);
}

#ifdef __x86_64__
/* Looks a symbol up as programs do that were linked with an older glibc, or with this one. */
#define REFERENCE(local, name, version)                      \
    extern void local(void);                                 \
    __asm__(".symver " #local ", " name "@" version)
REFERENCE(trylock_old, "pthread_mutex_trylock", "GLIBC_2.2.5");
REFERENCE(trylock_new, "pthread_mutex_trylock", "GLIBC_2.34");
REFERENCE(rdlock_old, "pthread_rwlock_rdlock", "GLIBC_2.2.5");
REFERENCE(mtx_old, "mtx_lock", "GLIBC_2.28");
REFERENCE(clock_old, "pthread_cond_clockwait", "GLIBC_2.30");
REFERENCE(wait_now, "pthread_cond_wait", "GLIBC_2.3.2");
REFERENCE(wait_first, "pthread_cond_wait", "GLIBC_2.2.5");
REFERENCE(signal_first, "pthread_cond_signal", "GLIBC_2.2.5");

static void references(void)
{
    expect_from("reference", "pthread_mutex_trylock", "GLIBC_2.2.5", trylock_old);
    expect_from("reference", "pthread_mutex_trylock", "GLIBC_2.34", trylock_new);
    expect_from("reference", "pthread_rwlock_rdlock", "GLIBC_2.2.5", rdlock_old);
    expect_from("reference", "mtx_lock", "GLIBC_2.28", mtx_old);
    expect_from("reference", "pthread_cond_clockwait", "GLIBC_2.30", clock_old);
    expect_from("reference", "pthread_cond_wait", "GLIBC_2.3.2", wait_now);
    expect_from("reference", "pthread_cond_wait", "GLIBC_2.2.5", wait_first);
    expect_from("reference", "pthread_cond_signal", "GLIBC_2.2.5", signal_first);
}
#else
static void references(void) {}
#endif

/* A symbol of a library that was linked without libc, and lies beside the program. */
static void *bare(const char *folder, const char *library, const char *name)
{
    char path[4096];
    const char *slash = strrchr(folder, '/');
    CHECK(slash != NULL);
    snprintf(path, sizeof path, "%.*s/%s", (int)(slash - folder), folder, library);
    void *loaded = dlopen(path, RTLD_NOW);
    if (!loaded) {
        printf("FAILED: %s\n", dlerror());
        exit(1);
    }
    void *found = dlsym(loaded, name);
    CHECK(found != NULL);
    return found;
}

/* Looks a symbol up as such a library does: with no version at all. */
static void without_version(const char *folder)
{
    struct reference {
        const char *name;
        void *address;
    } *found = bare(folder, "lib_bare.so", "bare_references");
    for (; found && found->name; found++)
        expect_from("bare reference", found->name, "any", found->address);
    int (*waits)(int) = (int (*)(int))bare(folder, "lib_bare_cond.so", "bare_waits");
    CHECK(waits && waits(200) == 0);
}

int main(int argc, char **argv)
{
    (void)argc;
    preloaded = object_of(dlsym(RTLD_DEFAULT, "lockwright_preloaded"));
    libc_base = object_of(dlsym(RTLD_DEFAULT, "getpid"));
    all_of_libc();
    references();
    without_version(argv[0]);
    return finish();
}
