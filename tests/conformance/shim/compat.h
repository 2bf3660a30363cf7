/* Included before every file of glibc's tests: the few internal macros that they use. */
#pragma once
#define _GNU_SOURCE 1
#define attribute_hidden
#define attribute_compat_text_section
#define inhibit_loop_to_libcall
#define libc_hidden_def(name)
#define libc_hidden_proto(name)
#define libc_hidden_weak(name)
#define weak_alias(name, alias)
#define strong_alias(name, alias) extern __typeof(name) alias __attribute__((alias(#name)));
#define __glibc_likely(cond) __builtin_expect((cond), 1)
#define __glibc_unlikely(cond) __builtin_expect((cond), 0)
#define __ASSUME_SET_ROBUST_LIST 1
#define INTERNAL_SYSCALL_DECL(err)
#ifndef __ASSEMBLER__
#include <errno.h>
#include <features.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/cdefs.h>
#define __set_errno(value) (errno = (value))
#define atomic_load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define atomic_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define atomic_store_relaxed(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define atomic_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define atomic_fetch_add_relaxed(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define atomic_fetch_add_acq_rel(p, v) __atomic_fetch_add((p), (v), __ATOMIC_ACQ_REL)
#define atomic_compare_exchange_weak_acquire(p, expected, desired) \
    __atomic_compare_exchange_n((p), (expected), (desired), 1, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
#endif
