// SPDX-License-Identifier: Apache-2.0
// Runs the constructors of a program. Since 2.34, glibc finds them by itself
// and a program hands over no function that runs them; an older glibc would run
// none. Linked with -Wl,--wrap=__libc_start_main.

typedef int Main(int, char**, char**);
typedef void Constructor(int, char**, char**);

extern Constructor* __init_array_start[] __attribute__((visibility("hidden")));
extern Constructor* __init_array_end[] __attribute__((visibility("hidden")));
void _init(void);

int __real___libc_start_main(Main* main, int argc, char** argv,
                             Constructor* init, void (*fini)(void),
                             void (*loader_fini)(void), void* stack_end);
int __wrap___libc_start_main(Main* main, int argc, char** argv,
                             Constructor* init, void (*fini)(void),
                             void (*loader_fini)(void), void* stack_end);

static void RunConstructors(int argc, char** argv, char** environment) {
  _init();
  for (Constructor** next = __init_array_start; next != __init_array_end;
       ++next) {
    (*next)(argc, argv, environment);
  }
}

int __wrap___libc_start_main(Main* main, int argc, char** argv,
                             Constructor* init, void (*fini)(void),
                             void (*loader_fini)(void), void* stack_end) {
  (void)init;  // what crt1.o gives: nothing
  return __real___libc_start_main(main, argc, argv, RunConstructors, fini,
                                  loader_fini, stack_end);
}
