// Libraries opened later call epochs too: by their own slots, by tables, by addresses looked up; each plugin its own
// function of a name. What `dlsym`, `dlopen` and `dlerror` say to the program stays as it is.
// library: lib_wrap
// library: lib_middle
// library: lib_base
// library: lib_opener
// beside: lib_plugin
// beside: lib_other
// epoch: base 1020
// epoch: own 505
// epoch: twice 2
// epoch: middle 2
#include "../posix/check.h"

long middle(long x);
long twice(long x);
void *open_beside(const char *name);

typedef long call(long x);

static char folder[4096];

static const char *beside(const char *name)
{
    static char path[8192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void *opener(void *path)
{
    for (int i = 0; i < 100; i++) {
        void *plugin = dlopen(path, i % 2 ? RTLD_LAZY : RTLD_NOW);
        call *run = (call *)dlsym(plugin, "run");
        if (!run || run(1) < 12)
            return "wrong";
        dlclose(plugin);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    (void)argc;
    snprintf(folder, sizeof folder, "%s", argv[0]);
    *strrchr(folder, '/') = 0;

    /* Libraries that call libraries, and wrappers. */
    CHECK(middle(1) == 3 && middle(2) == 4);
    CHECK(twice(1) == 102 && twice(2) == 104);

    /* No dlsym between opening and calling: the plugin's table. */
    void *plugin = dlopen(beside("lib_plugin.so"), RTLD_LAZY);
    CHECK(plugin != NULL && dlerror() == NULL);
    call **entry = dlsym(plugin, "plugin_entry");
    CHECK(entry && (*entry)(1) == 12);
    struct {
        const char *name;
        call *call;
    } *table = dlsym(plugin, "plugin_table");
    CHECK(table && table[0].call(1) == 2 && table[1].call(1) == 11);

    /* Another one, with functions of the same names. */
    void *other = dlopen(beside("lib_other.so"), RTLD_LAZY);
    call *run = (call *)dlsym(other, "run");
    CHECK(run && run(1) == 22);
    call *own = (call *)dlsym(plugin, "own"), *others = (call *)dlsym(other, "own");
    CHECK(own && others && own != others && own(1) == 11 && others(1) == 21);
    CHECK(own == table[1].call);

    /* Looked up: the same address each time, for every caller. */
    call *base = (call *)dlsym(RTLD_DEFAULT, "base");
    CHECK(base && base == table[0].call && base(1) == 2 && dlerror() == NULL);

    /* Failures are told as ever. */
    CHECK(dlsym(RTLD_DEFAULT, "no_such_function") == NULL);
    const char *error = dlerror();
    CHECK(error && strstr(error, "no_such_function"));
    CHECK(dlsym(plugin, "no_such_function") == NULL);
    CHECK(dlopen("no_such_library.so", RTLD_NOW) == NULL);
    error = dlerror();
    CHECK(error && strstr(error, "no_such_library.so"));
    CHECK(dlerror() == NULL);

    /* The caller's file says where its libraries are. */
    void *sub = open_beside("lib_plugin.so");
    CHECK(sub == plugin);
    CHECK(open_beside("$ORIGIN/lib_other.so") == other);
    CHECK(dlopen(NULL, RTLD_NOW) != NULL);
    dlclose(sub), dlclose(plugin), dlclose(other), dlclose(other);

    /* Opened and closed by several threads at a time. */
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) {
        char *path = strdup(beside(i % 2 ? "lib_other.so" : "lib_plugin.so"));
        threads[i] = start(opener, path);
    }
    for (int i = 0; i < 5; i++)
        CHECK(join(threads[i]) == NULL);
    for (int i = 0; i < 512; i++) {
        call *found = (call *)dlsym(RTLD_DEFAULT, "base");
        CHECK(found == base);
        base(i);
    }
    return finish();
}
