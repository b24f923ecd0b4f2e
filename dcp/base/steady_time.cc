// SPDX-License-Identifier: Apache-2.0

#include "dcp/base/steady_time.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "dcp/base/check.h"

namespace dcp {
namespace {

// A year; longer waits end early, which callers allow.
constexpr absl::Duration kLongestWait = absl::Hours(24 * 365);

}  // namespace

absl::Duration SteadyNow() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

SteadyCondVar::SteadyCondVar() {
  pthread_condattr_t attributes;
  DCP_CHECK(pthread_condattr_init(&attributes) == 0);
  DCP_CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
  DCP_CHECK(pthread_cond_init(&condition_, &attributes) == 0);
  DCP_CHECK(pthread_condattr_destroy(&attributes) == 0);
  DCP_CHECK(pthread_mutex_init(&mutex_, nullptr) == 0);
}

SteadyCondVar::~SteadyCondVar() {
  DCP_CHECK(pthread_cond_destroy(&condition_) == 0);
  DCP_CHECK(pthread_mutex_destroy(&mutex_) == 0);
}

void SteadyCondVar::Wait(absl::Mutex* mutex) {
  WaitUntil(mutex, absl::InfiniteDuration());
}

bool SteadyCondVar::WaitUntil(absl::Mutex* mutex, absl::Duration end) {
  const timespec until =
      absl::ToTimespec(std::min(end, SteadyNow() + kLongestWait));
  // A signal needs mutex_, so none is lost between the two calls.
  DCP_CHECK(pthread_mutex_lock(&mutex_) == 0);
  mutex->Unlock();
  pthread_cond_timedwait(&condition_, &mutex_, &until);
  DCP_CHECK(pthread_mutex_unlock(&mutex_) == 0);
  mutex->Lock();
  return SteadyNow() >= end;
}

void SteadyCondVar::Signal() {
  DCP_CHECK(pthread_mutex_lock(&mutex_) == 0);
  pthread_cond_signal(&condition_);
  DCP_CHECK(pthread_mutex_unlock(&mutex_) == 0);
}

void SteadyCondVar::SignalAll() {
  DCP_CHECK(pthread_mutex_lock(&mutex_) == 0);
  pthread_cond_broadcast(&condition_);
  DCP_CHECK(pthread_mutex_unlock(&mutex_) == 0);
}

}  // namespace dcp
