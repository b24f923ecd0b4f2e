// SPDX-License-Identifier: Apache-2.0
// StoreContract: tests that every ObjectStore must pass. A store's test
// instantiates the suite with a way to open it:
//
//   INSTANTIATE_TEST_SUITE_P(Radosgw, StoreContract,
//                            ::testing::Values(OpenRadosgw));
#ifndef TESTS_DCP_IO_OBJECT_STORE_CONTRACT_H_
#define TESTS_DCP_IO_OBJECT_STORE_CONTRACT_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "dcp/io/object/object_store.h"
#include "tests/dcp/io/object/store_calls.h"

namespace dcp {

// Opens a store. It may hold an earlier test's objects. Where stores differ,
// the store's own properties, such as has_conditions(), decide which result is
// expected.
using OpenStore = std::unique_ptr<ObjectStore> (*)();

class StoreContract : public ::testing::TestWithParam<OpenStore> {
 protected:
  StoreContract() : store_(GetParam()()) {}

  // `name` below a prefix that is this test's own.
  std::string Key(absl::string_view name) const;
  bool takes_parts_in_order() const;
  // A put with `condition`, which does not hold, replaces nonetheless, as where
  // a store has no conditions.
  void ExpectReplaces(const PutCondition& condition);

  const std::unique_ptr<ObjectStore> store_;
};

}  // namespace dcp

#endif  // TESTS_DCP_IO_OBJECT_STORE_CONTRACT_H_
