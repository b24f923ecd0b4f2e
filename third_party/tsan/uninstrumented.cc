// SPDX-License-Identifier: Apache-2.0
// Lets ThreadSanitizer overlook accesses inside gRPC and aws-c-s3.
//
// They are compiled without ThreadSanitizer, which sees the calls to malloc,
// free, memcpy and pthread_mutex_destroy in them, but not the atomics that
// order them. So accesses by such functions are ignored; accesses by our own
// code are checked. Linked only with --config=tsan, and once: the sanitizer's
// own library has a weak function with this name.

extern "C" const char* __tsan_default_options() {
  return "ignore_interceptors_accesses=1";
}
