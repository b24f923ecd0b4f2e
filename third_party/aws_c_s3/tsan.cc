// Lets ThreadSanitizer overlook what happens inside of aws-c-s3.
//
// It is compiled without ThreadSanitizer, which sees the calls of malloc, free,
// memcpy and pthread_mutex_destroy in it, but not the counts of owners that
// order them. So accesses by such functions are not looked at; accesses of our
// own code are. Linked only with --config=tsan.

// As for gRPC, whose definition may be in the same program.
extern "C" __attribute__((weak)) const char* __tsan_default_options() {
  return "ignore_interceptors_accesses=1";
}
