// A library is opened, used and closed again and again, bound at once or lazily.
// beside: lib_late
#include "check.h"

int main(int argc, char **argv)
{
    (void)argc;
    char path[4096];
    snprintf(path, sizeof path, "%s", argv[0]);
    char *slash = strrchr(path, '/');
    CHECK(slash != NULL);
    strcpy(slash ? slash + 1 : path, "lib_late.so");
    for (int i = 0; i < 12; i++) {
        int how = (i % 2 ? RTLD_NOW : RTLD_LAZY) | (i % 3 ? RTLD_LOCAL : RTLD_GLOBAL);
        void *library = dlopen(path, how);
        if (!library) {
            printf("FAILED: %s\n", dlerror());
            return 1;
        }
        int (*run)(void) = (int (*)(void))dlsym(library, "late_run");
        CHECK(run && run() == 0);
        CHECK(dlclose(library) == 0);
        CHECK(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL);
    }
    return finish();
}
