// SPDX-License-Identifier: Apache-2.0
// An ObjectStore's calls, waiting for their answers. For tests; any thread.
#ifndef TESTS_DCP_IO_OBJECT_STORE_CALLS_H_
#define TESTS_DCP_IO_OBJECT_STORE_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/object/object_store.h"

namespace dcp {

absl::StatusOr<std::string> Put(ObjectStore& store, absl::string_view key,
                                absl::string_view text,
                                const PutCondition& condition = {});
absl::StatusOr<ObjectPart> PutPart(ObjectStore& store, absl::string_view key,
                                   absl::string_view upload, uint32_t number,
                                   absl::string_view text);
// `size` bytes from `offset` on.
absl::StatusOr<std::string> Get(ObjectStore& store, absl::string_view key,
                                absl::string_view etag, uint64_t offset,
                                size_t size,
                                std::stop_token stop = std::stop_token());
// The keys below `prefix`, from all pages.
absl::StatusOr<std::vector<ObjectInfo>> ListAll(ObjectStore& store,
                                                absl::string_view prefix);

// Bytes that repeat nowhere near.
std::string PatternedText(size_t size, uint32_t seed);

}  // namespace dcp

#endif  // TESTS_DCP_IO_OBJECT_STORE_CALLS_H_
