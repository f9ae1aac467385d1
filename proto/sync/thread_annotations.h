// SPDX-License-Identifier: Apache-2.0
// Annotations that say which lock guards what, for clang's analysis (-Wthread-safety, an error in the asan preset); no
// effect with other compilers.
//
//   Mutex mutex_ GPULOOM_ACQUIRED_BEFORE(other_);
//   std::vector<Job> jobs_ GPULOOM_GUARDED_BY(mutex_);
//   void AddLocked(Job job) GPULOOM_REQUIRES(mutex_);
//
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html. Which lock is taken while which is held: docs/design/locks.md.
#pragma once

#if defined(__clang__)
#define GPULOOM_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define GPULOOM_THREAD_ANNOTATION(x)
#endif

// On a type: it is a lock; it holds one while it lives.
#define GPULOOM_CAPABILITY(name) GPULOOM_THREAD_ANNOTATION(capability(name))
#define GPULOOM_SCOPED_CAPABILITY GPULOOM_THREAD_ANNOTATION(scoped_lockable)
// On data: it is guarded; what it points to is guarded.
#define GPULOOM_GUARDED_BY(lock) GPULOOM_THREAD_ANNOTATION(guarded_by(lock))
#define GPULOOM_PT_GUARDED_BY(lock) GPULOOM_THREAD_ANNOTATION(pt_guarded_by(lock))
// On a lock: the acquisition order.
#define GPULOOM_ACQUIRED_BEFORE(...) GPULOOM_THREAD_ANNOTATION(acquired_before(__VA_ARGS__))
#define GPULOOM_ACQUIRED_AFTER(...) GPULOOM_THREAD_ANNOTATION(acquired_after(__VA_ARGS__))
// On a function: the caller holds it; must not hold it.
#define GPULOOM_REQUIRES(...) GPULOOM_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define GPULOOM_REQUIRES_SHARED(...) \
  GPULOOM_THREAD_ANNOTATION(requires_shared_capability(__VA_ARGS__))
#define GPULOOM_EXCLUDES(...) GPULOOM_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// On a function: it acquires or releases the lock.
#define GPULOOM_ACQUIRE(...) GPULOOM_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define GPULOOM_ACQUIRE_SHARED(...) \
  GPULOOM_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define GPULOOM_RELEASE(...) GPULOOM_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define GPULOOM_RELEASE_SHARED(...) \
  GPULOOM_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define GPULOOM_RELEASE_GENERIC(...) \
  GPULOOM_THREAD_ANNOTATION(release_generic_capability(__VA_ARGS__))
#define GPULOOM_TRY_ACQUIRE(...) GPULOOM_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define GPULOOM_RETURN_CAPABILITY(lock) GPULOOM_THREAD_ANNOTATION(lock_returned(lock))
// On a function that the analysis cannot follow; say why.
#define GPULOOM_NO_THREAD_SAFETY_ANALYSIS GPULOOM_THREAD_ANNOTATION(no_thread_safety_analysis)
