/* Included before every C and C++ source of a wheel: functions that moved to libc.so.6 with glibc 2.34 are bound by the
 * version that they had before and still have, so that a wheel built on a newer system runs on glibc 2.28
 * (manylinux_2_28). There they are in libdl.so.2 and libpthread.so.0, which the wheel therefore names. */
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __x86_64__
#define BEFORE "GLIBC_2.2.5"
#else
#define BEFORE "GLIBC_2.17"
#endif
__asm__(".symver dladdr,dladdr@" BEFORE);
__asm__(".symver dlopen,dlopen@" BEFORE);
__asm__(".symver dlsym,dlsym@" BEFORE);
__asm__(".symver pthread_key_create,pthread_key_create@" BEFORE);
__asm__(".symver pthread_setspecific,pthread_setspecific@" BEFORE);
__asm__(".symver pthread_rwlock_rdlock,pthread_rwlock_rdlock@" BEFORE);
__asm__(".symver pthread_rwlock_unlock,pthread_rwlock_unlock@" BEFORE);
__asm__(".symver pthread_rwlock_wrlock,pthread_rwlock_wrlock@" BEFORE);
#undef BEFORE
#endif
/* The same for libstdc++.so.6, which has a newer one since gcc 12. */
#if defined(__cplusplus) && defined(__x86_64__)
#define WAIT "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"
__asm__(".symver " WAIT "," WAIT "@GLIBCXX_3.4.11");
#undef WAIT
#endif
