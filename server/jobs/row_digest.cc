// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/row_digest.h"

#include <sqlite3.h>

#include <cstdint>

#include "absl/base/casts.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"

namespace dcp::server {
namespace {

void UpdateNumber(Digest64& digest, int64_t number) {
  char bytes[sizeof(number)];
  for (size_t i = 0; i < sizeof(number); ++i) {
    bytes[i] = static_cast<char>(static_cast<uint64_t>(number) >> (8 * i));
  }
  digest.Update(AsBytes(absl::string_view(bytes, sizeof(bytes))));
}

void UpdateValue(Digest64& digest, sqlite3_value* value) {
  const int type = sqlite3_value_type(value);
  UpdateNumber(digest, type);
  if (type == SQLITE_INTEGER) {
    UpdateNumber(digest, sqlite3_value_int64(value));
    return;
  }
  // Must precede sqlite3_value_bytes, because it may convert the value and so
  // change its length.
  const void* data = sqlite3_value_blob(value);
  const int size = sqlite3_value_bytes(value);
  UpdateNumber(digest, size);
  digest.Update(AsBytes(absl::string_view(static_cast<const char*>(data),
                                          static_cast<size_t>(size))));
}

void RowDigest(sqlite3_context* context, int num_values,
               sqlite3_value** values) {
  Digest64 digest;
  for (int i = 0; i < num_values; ++i) UpdateValue(digest, values[i]);
  sqlite3_result_int64(context, absl::bit_cast<int64_t>(digest.Value()));
}

}  // namespace

int DefineRowDigest(sqlite3* database) {
  constexpr int kAnyNumber = -1;
  return sqlite3_create_function_v2(database, "row_digest", kAnyNumber,
                                    SQLITE_UTF8 | SQLITE_DETERMINISTIC, nullptr,
                                    &RowDigest, nullptr, nullptr, nullptr);
}

}  // namespace dcp::server
