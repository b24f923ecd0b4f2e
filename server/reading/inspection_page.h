// SPDX-License-Identifier: Apache-2.0
// One page of Inspect. Page tokens are bound to the checkpoint and to the
// request: any other token is refused. Any thread.
#ifndef SERVER_READING_INSPECTION_PAGE_H_
#define SERVER_READING_INSPECTION_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/access/page_token.h"
#include "server/reading/checkpoint_cache.h"
#include "tessera/v1/checkpoint_service.pb.h"

namespace dcp::server {

struct InspectionPage {
  std::vector<uint32_t> entries;  // from `first` on, at most the page size
  size_t first = 0;               // index among the matching entries
  size_t num_matching = 0;
  // Totals over all matching entries.
  uint64_t num_tensors = 0;
  uint64_t num_objects = 0;
  uint64_t num_bytes = 0;
  // Objects on the page; they must be located before FillPage.
  std::vector<uint32_t> objects;
  std::string query;  // that the page token is bound to
};

// InvalidArgument names the field. Cancelled soon after `cancelled` returns
// true, because matching many patterns with many names takes long.
absl::StatusOr<InspectionPage> ChoosePage(
    const SharedCheckpoint& shared, const tessera::v1::InspectRequest& request,
    const PageTokens& tokens, absl::FunctionRef<bool()> cancelled);

// `with_texts`: the objects are located. A page ends early if the message would
// become too large. The first page lists the files.
void FillPage(const SharedCheckpoint& shared,
              const tessera::v1::InspectRequest& request,
              const InspectionPage& page, const PageTokens& tokens,
              bool with_texts, tessera::v1::InspectResponse& response);

}  // namespace dcp::server

#endif  // SERVER_READING_INSPECTION_PAGE_H_
