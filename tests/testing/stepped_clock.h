// SPDX-License-Identifier: Apache-2.0
// A program that links this has a system clock that a test can set: this
// definition of clock_gettime replaces libc's. Other clocks stay as they are.
// Any thread.
#ifndef TESTS_TESTING_STEPPED_CLOCK_H_
#define TESTS_TESTING_STEPPED_CLOCK_H_

#include "absl/time/time.h"

namespace dcp::testing {

// From now on the system's clock differs by `step` from the true time.
void SetClockStep(absl::Duration step);

}  // namespace dcp::testing

#endif  // TESTS_TESTING_STEPPED_CLOCK_H_
