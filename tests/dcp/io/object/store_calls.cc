// SPDX-License-Identifier: Apache-2.0
// Calls an ObjectStore and waits for the answers.
// Tested by tests/testing/sim_object_server_test.cc.
#include "tests/dcp/io/object/store_calls.h"

#include <iterator>
#include <random>
#include <utility>

#include "absl/synchronization/notification.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"

namespace dcp {

absl::StatusOr<std::string> Put(ObjectStore& store, absl::string_view key,
                                absl::string_view text,
                                const PutCondition& condition) {
  absl::StatusOr<std::string> result;
  absl::Notification done;
  store.Put(key, AsBytes(text), condition, std::stop_token(),
            [&](absl::StatusOr<std::string> etag) {
              result = std::move(etag);
              done.Notify();
            });
  done.WaitForNotification();
  return result;
}

absl::StatusOr<ObjectPart> PutPart(ObjectStore& store, absl::string_view key,
                                   absl::string_view upload, uint32_t number,
                                   absl::string_view text) {
  absl::StatusOr<ObjectPart> result;
  absl::Notification done;
  store.PutPart(key, upload, number, AsBytes(text), std::stop_token(),
                [&](absl::StatusOr<ObjectPart> part) {
                  result = std::move(part);
                  done.Notify();
                });
  done.WaitForNotification();
  return result;
}

absl::StatusOr<std::string> Get(ObjectStore& store, absl::string_view key,
                                absl::string_view etag, uint64_t offset,
                                size_t size, std::stop_token stop) {
  std::string text(size, '?');
  absl::Status result;
  absl::Notification done;
  store.Get(key, etag, offset,
            MutableByteSpan(reinterpret_cast<uint8_t*>(text.data()), size),
            std::move(stop), [&](absl::Status status) {
              result = std::move(status);
              done.Notify();
            });
  done.WaitForNotification();
  DCP_RETURN_IF_ERROR(result);
  return text;
}

absl::StatusOr<std::vector<ObjectInfo>> ListAll(ObjectStore& store,
                                                absl::string_view prefix) {
  std::vector<ObjectInfo> objects;
  std::string next;
  do {
    DCP_ASSIGN_OR_RETURN(ObjectPage page, store.List(prefix, false, next));
    std::move(page.objects.begin(), page.objects.end(),
              std::back_inserter(objects));
    next = page.next;
  } while (!next.empty());
  return objects;
}

std::string PatternedText(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

}  // namespace dcp
