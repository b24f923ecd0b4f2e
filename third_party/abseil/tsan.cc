// SPDX-License-Identifier: Apache-2.0
// Makes absl::Mutex, absl::CondVar, absl::Notification and absl::Status known
// to ThreadSanitizer.
//
// Debian's Abseil is compiled without ThreadSanitizer, which therefore sees no
// edge between an Unlock() and the Lock() that follows, and reports a race on
// everything that a Mutex guards. The linker's --wrap (abseil.BUILD) sends each
// call from our code through here, where the edges are declared. Linked only
// with --config=tsan.
//
// Await() and LockWhen() stay unknown: they evaluate the caller's condition
// inside the library, on threads that it chooses. Use CondVar, or
// std::condition_variable_any.

#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

// A member function takes the object as first argument, so that a plain
// function with the same remaining arguments has the same calling convention.
#define DCP_MUTEX(name, symbol)                \
  void Real##name(absl::Mutex*) __asm__(       \
      "__real__ZN4absl7debian35Mutex" symbol); \
  void Wrap##name(absl::Mutex*) __asm__(       \
      "__wrap__ZN4absl7debian35Mutex" symbol); \
  void Wrap##name(absl::Mutex* mutex)

DCP_MUTEX(Lock, "4LockEv") {
  RealLock(mutex);
  __tsan_acquire(mutex);
}

DCP_MUTEX(Unlock, "6UnlockEv") {
  __tsan_release(mutex);
  RealUnlock(mutex);
}

DCP_MUTEX(ReaderLock, "10ReaderLockEv") {
  RealReaderLock(mutex);
  __tsan_acquire(mutex);
}

DCP_MUTEX(ReaderUnlock, "12ReaderUnlockEv") {
  __tsan_release(mutex);
  RealReaderUnlock(mutex);
}

bool RealTryLock(absl::Mutex*) __asm__(
    "__real__ZN4absl7debian35Mutex7TryLockEv");
bool WrapTryLock(absl::Mutex*) __asm__(
    "__wrap__ZN4absl7debian35Mutex7TryLockEv");
bool WrapTryLock(absl::Mutex* mutex) {
  const bool locked = RealTryLock(mutex);
  if (locked) __tsan_acquire(mutex);
  return locked;
}

void RealWait(absl::CondVar*, absl::Mutex*) __asm__(
    "__real__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
void WrapWait(absl::CondVar*, absl::Mutex*) __asm__(
    "__wrap__ZN4absl7debian37CondVar4WaitEPNS0_5MutexE");
void WrapWait(absl::CondVar* condition, absl::Mutex* mutex) {
  __tsan_release(mutex);
  RealWait(condition, mutex);
  __tsan_acquire(mutex);
}

bool RealWaitWithTimeout(absl::CondVar*, absl::Mutex*, absl::Duration) __asm__(
    "__real__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_"
    "8DurationE");
bool WrapWaitWithTimeout(absl::CondVar*, absl::Mutex*, absl::Duration) __asm__(
    "__wrap__ZN4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_"
    "8DurationE");
bool WrapWaitWithTimeout(absl::CondVar* condition, absl::Mutex* mutex,
                         absl::Duration timeout) {
  __tsan_release(mutex);
  const bool timed_out = RealWaitWithTimeout(condition, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

bool RealWaitWithDeadline(absl::CondVar*, absl::Mutex*, absl::Time) __asm__(
    "__real__ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_"
    "4TimeE");
bool WrapWaitWithDeadline(absl::CondVar*, absl::Mutex*, absl::Time) __asm__(
    "__wrap__ZN4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_"
    "4TimeE");
bool WrapWaitWithDeadline(absl::CondVar* condition, absl::Mutex* mutex,
                          absl::Time deadline) {
  __tsan_release(mutex);
  const bool timed_out = RealWaitWithDeadline(condition, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

#define DCP_NOTIFICATION "4absl7debian312Notification"

void RealNotify(absl::Notification*) __asm__("__real__ZN" DCP_NOTIFICATION
                                             "6NotifyEv");
void WrapNotify(absl::Notification*) __asm__("__wrap__ZN" DCP_NOTIFICATION
                                             "6NotifyEv");
void WrapNotify(absl::Notification* notification) {
  __tsan_release(notification);
  RealNotify(notification);
}

void RealAwait(const absl::Notification*) __asm__("__real__ZNK" DCP_NOTIFICATION
                                                  "19WaitForNotificationEv");
void WrapAwait(const absl::Notification*) __asm__("__wrap__ZNK" DCP_NOTIFICATION
                                                  "19WaitForNotificationEv");
void WrapAwait(const absl::Notification* notification) {
  RealAwait(notification);
  __tsan_acquire(const_cast<absl::Notification*>(notification));
}

bool RealAwaitWithTimeout(const absl::Notification*, absl::Duration) __asm__(
    "__real__ZNK" DCP_NOTIFICATION
    "30WaitForNotificationWithTimeoutENS0_8DurationE");
bool WrapAwaitWithTimeout(const absl::Notification*, absl::Duration) __asm__(
    "__wrap__ZNK" DCP_NOTIFICATION
    "30WaitForNotificationWithTimeoutENS0_8DurationE");
bool WrapAwaitWithTimeout(const absl::Notification* notification,
                          absl::Duration timeout) {
  const bool notified = RealAwaitWithTimeout(notification, timeout);
  if (notified) __tsan_acquire(const_cast<absl::Notification*>(notification));
  return notified;
}

// Absl: the last owner of a Status frees it inside the library, where the other
// owners' decrements happened too. Notify() unlocks a mutex, which asks whether
// the waiter's condition holds; a Notification lives until that is done,
// because the destructor locks the mutex, inside the library.
//
// Rings: liburing maps and unmaps them with system calls that ThreadSanitizer
// does not see. One thread's ring at the address where another thread's was
// before looks like a race; a ring has one thread.
//
// gRPC: the thread that reads a call's headers makes the call, and it begins on
// another; the last owner destroys it, and where it was cancelled, that
// decrement happened inside the library. Below these, only OnDone and the
// destructor of the interceptor that logs the call are ours. A handler in gRPC
// answers a call to a method that does not exist (BatchCallAllocation); below
// it, only the interceptor that logs it is ours. An interceptor hands a call on
// to the next step, in memory that another thread wrote inside the library;
// only this one read is passed over (race_top), not the handler that it leads
// to. A test sets up a fake daemon (tests/client) before it calls it, and gRPC
// hands the call to another thread inside the library.
//
// aws-c-s3: threads that end by themselves are joined by the next one.
extern "C" const char* __tsan_default_suppressions() {
  return "race:absl::*Status::Unref\n"
         "race:absl::*Mutex::UnlockSlow\n"
         "race:liburing.h\n"
         "race:uring_queue.cc\n"
         "race:RegisteredCallAllocation\n"
         "race:BatchCallAllocation\n"
         "race_top:^grpc::internal::InterceptorBatchMethodsImpl::\n"
         "race:^dcp::client::Fake*::\n"
         "thread:^aws_thread_launch\n"
         "race:^grpc::internal::Callback*::CallOnDone\n"
         "race:^grpc::ServerContextBase::~ServerContextBase\n"
         "race:^grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, "
         "grpc::ByteBuffer>::\n";
}
