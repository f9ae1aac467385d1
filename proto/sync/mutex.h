// SPDX-License-Identifier: Apache-2.0
// Locks that clang's thread safety analysis understands, unlike libstdc++'s. Like std::mutex and std::shared_mutex:
// constant-initialised, not recursive, not movable; fork does not reset them. Needs no libstdc++, so the shim may use
// them.
//
//   const MutexLock lock(mutex_);
#pragma once

#include <pthread.h>

#include "proto/sync/thread_annotations.h"

namespace gpuloom {

class GPULOOM_CAPABILITY("mutex") Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() GPULOOM_ACQUIRE() { pthread_mutex_lock(&mutex_); }
  void Unlock() GPULOOM_RELEASE() { pthread_mutex_unlock(&mutex_); }
  [[nodiscard]] bool TryLock() GPULOOM_TRY_ACQUIRE(true) {
    return pthread_mutex_trylock(&mutex_) == 0;
  }

 private:
  friend class CondVar;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

// Many readers or one writer.
class GPULOOM_CAPABILITY("mutex") SharedMutex {
 public:
  constexpr SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void Lock() GPULOOM_ACQUIRE() { pthread_rwlock_wrlock(&lock_); }
  void Unlock() GPULOOM_RELEASE() { pthread_rwlock_unlock(&lock_); }
  void LockShared() GPULOOM_ACQUIRE_SHARED() { pthread_rwlock_rdlock(&lock_); }
  void UnlockShared() GPULOOM_RELEASE_SHARED() { pthread_rwlock_unlock(&lock_); }

 private:
  pthread_rwlock_t lock_ = PTHREAD_RWLOCK_INITIALIZER;
};

// Holds a lock while it lives, except between Unlock and Lock.
class GPULOOM_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) GPULOOM_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() GPULOOM_RELEASE() {
    if (held_) mutex_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() GPULOOM_RELEASE() {
    held_ = false;
    mutex_.Unlock();
  }
  void Lock() GPULOOM_ACQUIRE() {
    mutex_.Lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

class GPULOOM_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) GPULOOM_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~WriterLock() GPULOOM_RELEASE() { mutex_.Unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class GPULOOM_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) GPULOOM_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.LockShared();
  }
  ~ReaderLock() GPULOOM_RELEASE() { mutex_.UnlockShared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

}  // namespace gpuloom
