// SPDX-License-Identifier: Apache-2.0
// SHA-256, by which golden files name tensors' bytes. Not fast. Any thread.
// Source: FIPS 180-4.
#ifndef TESTS_TESTING_SHA256_H_
#define TESTS_TESTING_SHA256_H_

#include <string>

#include "absl/strings/string_view.h"

namespace dcp::testing {

// The digest of `bytes`, as 64 hexadecimal digits.
std::string Sha256(absl::string_view bytes);

}  // namespace dcp::testing

#endif  // TESTS_TESTING_SHA256_H_
