// SaveExchange: how the ranks of a save come to write one checkpoint: who
// writes what, and into which file. It speaks before anything is written;
// Save speaks afterwards. The protocol, and why ranks cannot disagree about
// it, is written out in save_exchange.cc. One thread; every rank makes the
// same calls.
#ifndef DCP_CHECKPOINT_SAVE_EXCHANGE_H_
#define DCP_CHECKPOINT_SAVE_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/commit.h"
#include "dcp/checkpoint/coordinator.h"
#include "dcp/checkpoint/save.h"
#include "dcp/checkpoint/save_plan_cache.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/metadata.h"

namespace dcp {

// All items of `state` as metadata for the other ranks; the number of an item,
// first the tensors and then the objects, stands as the offset of its storage.
Metadata OfferedItems(const SaveState& state);

class SaveExchange {
 public:
  // What the ranks know of each other. kOver: an error that all ranks have, or
  // the connection is lost; there is nothing more to say to anyone.
  enum class Phase : uint8_t { kBegun, kMet, kOrdered, kOver };

  // All but `path` outlive this. `cache` may be null.
  SaveExchange(FileSystem& fs, absl::string_view path, const SaveState& state,
               Coordinator& coordinator, bool overwrite, SavePlanCache* cache);

  Phase phase() const { return phase_; }
  // The error, when it is over.
  const absl::Status& status() const { return status_; }

  // Whether items() are this rank's: from the start, if the cache has a plan
  // for this state; no longer, when another rank cannot keep to it; and again
  // with an order.
  bool has_plan() const { return has_plan_; }
  // The numbers of the items that this rank writes: first the tensors of the
  // state, then its objects. Rising.
  const std::vector<size_t>& items() const { return items_; }

  // kBegun -> kMet, collective. `mine` is how this rank fares so far; an error
  // of any rank is returned on all, and it is over.
  absl::Status Meet(const absl::Status& mine);

  // kMet -> kOrdered, collective. `mine` counts on rank 0 only, where it keeps
  // the others from beginning; other ranks report theirs afterwards. An error
  // that is not over is this rank's alone.
  absl::Status Receive(const absl::Status& mine);

  // Once ordered. On rank 0 the destination is to be committed; if it goes
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

#endif  // DCP_CHECKPOINT_SAVE_EXCHANGE_H_
