// StoreContract: what every ObjectStore must do, as tests that run with each of
// them. A test of a store instantiates the suite with a way to open it:
//
//   INSTANTIATE_TEST_SUITE_P(Radosgw, StoreContract,
//                            ::testing::Values(OpenRadosgw));
#ifndef TESTS_DCP_IO_OBJECT_STORE_CONTRACT_H_
#define TESTS_DCP_IO_OBJECT_STORE_CONTRACT_H_

#include <gtest/gtest.h>

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/object/object_store.h"

namespace dcp {

// Opens a store that keeps to conditions. Its objects may be those of an
// earlier test.
using OpenStore = std::unique_ptr<ObjectStore> (*)();

class StoreContract : public ::testing::TestWithParam<OpenStore> {
 protected:
  StoreContract() : store_(GetParam()()) {}

  // `name` below a prefix that is this test's own.
  std::string Key(absl::string_view name) const;

  const std::unique_ptr<ObjectStore> store_;
};

// The calls of a store, waiting for their answers.
absl::StatusOr<std::string> Put(ObjectStore& store, absl::string_view key,
                                absl::string_view text,
                                const PutCondition& condition = {});
absl::StatusOr<std::string> PutPart(ObjectStore& store, absl::string_view key,
                                    absl::string_view upload, uint32_t number,
                                    absl::string_view text);
// `size` bytes from `offset` on.
absl::StatusOr<std::string> Get(ObjectStore& store, absl::string_view key,
                                absl::string_view etag, uint64_t offset,
                                size_t size,
                                std::stop_token stop = std::stop_token());
// The keys below `prefix`, of all pages.
absl::StatusOr<std::vector<ObjectInfo>> ListAll(ObjectStore& store,
                                                absl::string_view prefix);

// Bytes that repeat nowhere near.
std::string PatternedText(size_t size, uint32_t seed);

}  // namespace dcp

#endif  // TESTS_DCP_IO_OBJECT_STORE_CONTRACT_H_
