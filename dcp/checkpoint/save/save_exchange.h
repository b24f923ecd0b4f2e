// SPDX-License-Identifier: Apache-2.0
// SaveExchange: how the ranks of a save agree on one checkpoint: who writes
// which items, and into which file. It communicates before anything is written;
// Save does so afterwards. save_exchange.cc describes the protocol and why
// ranks cannot disagree about it. One thread; every rank makes the same calls.
#ifndef DCP_CHECKPOINT_SAVE_SAVE_EXCHANGE_H_
#define DCP_CHECKPOINT_SAVE_SAVE_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/destination/destination.h"
#include "dcp/checkpoint/save/coordinator.h"
#include "dcp/checkpoint/save/save_plan_cache.h"
#include "dcp/checkpoint/save/save_state.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// All items in `state` as metadata for the other ranks. The offset in an item's
// storage is the item's number: first the tensors, then the objects.
Metadata OfferedItems(const SaveState& state);

class SaveExchange {
 public:
  // How much the ranks know about each other. kOver: all ranks have an error,
  // or the connection is lost; there is nothing left to tell anyone.
  enum class Phase : uint8_t { kBegun, kMet, kOrdered, kOver };

  // Everything but `path` must outlive this. `cache` may be null.
  SaveExchange(FileSystem& fs, absl::string_view path, const SaveState& state,
               Coordinator& coordinator, bool overwrite, SavePlanCache* cache);

  Phase phase() const { return phase_; }
  // The error, in phase kOver.
  const absl::Status& status() const { return status_; }

  // Whether items() are valid for this rank: from the start if the cache has a
  // plan for this state, no longer if another rank cannot keep to it, and again
  // after an order was received.
  bool has_plan() const { return has_plan_; }
  // The numbers of the items that this rank writes, in increasing order: first
  // tensors, then objects.
  const std::vector<size_t>& items() const { return items_; }

  // kBegun -> kMet, collective. `mine` is this rank's status so far; an error
  // on any rank is returned on all and leads to kOver.
  absl::Status Meet(const absl::Status& mine);

  // kMet -> kOrdered, collective. `mine` counts only on rank 0, where an error
  // keeps the other ranks from beginning; other ranks report theirs afterwards.
  // If an error is returned in a phase other than kOver, only this rank has it.
  absl::Status Receive(const absl::Status& mine);

  // Valid once ordered. Rank 0 must commit the destination; if it is destroyed
  // before that, the files of all ranks are removed.
  const std::string& file_name() const { return file_name_; }
  Destination* destination() { return destination_.get(); }

 private:
  absl::Status End(absl::Status status);
  std::string Decide(const std::vector<std::string>& greetings) const;
  absl::StatusOr<std::vector<std::string>> Offers();
  absl::Status MakeOrders(const std::vector<std::string>& offers,
                          std::vector<std::string>& orders);
  absl::Status Begin();
  absl::Status Accept(absl::string_view order);

  FileSystem& fs_;
  const std::string path_;
  const SaveState& state_;
  Coordinator& coordinator_;
  const bool overwrite_;
  SavePlanCache* const cache_;
  const bool is_first_;
  Phase phase_ = Phase::kBegun;
  absl::Status status_;
  bool has_plan_;
  std::vector<size_t> items_;
  std::string file_name_;
  std::unique_ptr<Destination> destination_;
};

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SAVE_SAVE_EXCHANGE_H_
