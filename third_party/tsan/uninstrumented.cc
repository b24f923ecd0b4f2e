// SPDX-License-Identifier: Apache-2.0
// Lets ThreadSanitizer overlook what happens inside of gRPC and aws-c-s3.
//
// They are compiled without ThreadSanitizer, which sees the calls of malloc,
// free, memcpy and pthread_mutex_destroy in them, but not the atomics that
// order them. So accesses by such functions are not looked at; accesses of our
// own code are. Linked only with --config=tsan, and once: the sanitizer's own
// library has a weak function of this name.

extern "C" const char* __tsan_default_options() {
  return "ignore_interceptors_accesses=1";
}
