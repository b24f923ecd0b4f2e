// SPDX-License-Identifier: Apache-2.0
// The protocol. Messages are text, which is parsed as if it came from a file:
//   1. Meet. Every rank sends a status and the id of the plan that it can keep
//      to, if it has one. Rank 0 sends the same answer to all: an error, if any
//      rank has one; "keep", if all sent the id that rank 0 itself has; else
//      "anew".
//   2. Receive.
//      a. After "anew", every rank sends the .metadata of a checkpoint that has
//         all items of that rank, and rank 0 decides who writes which, under a
//         new id. After "keep", nobody sends anything.
//      b. Rank 0 begins the destination and sends every rank an order: the
//         file's name and, after "anew", id and items; or an error.
//
// [Note: one protocol] Every rank meets exactly once in a save, whatever it
// knows. A cached plan changes only the steps before (copying into memory) and
// the contents of messages, never which messages follow. These depend only on
// the answer, which is the same for all. So no rank has to know, or be told
// when a save ends, whether the other ranks still have the plan.
//
// [Note: a plan that is kept is whole] An id names one decision by rank 0: rank
// 0 checked that the items make every tensor whole, for the states and the
// number of ranks at that time. A rank sends the id only if its state, its rank
// and the number of ranks have not changed since (SavePlanCache::Holds). If all
// ranks send the same id, no state has changed, so the same items still make
// every tensor whole. A rank that failed in between, missed an order, or saved
// with other ranks in the meantime has no id or another one; then all plan
// again. A failed save does not invalidate the plan.
//
// [Note: staged after the meeting] A rank that copied by a cached plan must not
// let its tensors change before "keep", because after "anew" it may have to
// copy other items. Hence on_staged follows Meet, not just the copying. It does
// not wait for Receive, during which rank 0 accesses the disk.
#include "dcp/checkpoint/save/save_exchange.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/destination/plan_destination.h"
#include "dcp/checkpoint/destination/save_id.h"
#include "dcp/checkpoint/save/metadata_builder.h"
#include "dcp/format/index/dcp_metadata.h"
#include "dcp/format/index/dcp_metadata_writer.h"
#include "dcp/tensor/box.h"
#include "dcp/tensor/dtype.h"
#include "dcp/tensor/metadata.h"

namespace dcp {
namespace {

constexpr absl::string_view kPlannedFile = "planned";

// Each message begins with one of these words.
constexpr absl::string_view kError = "error ";
constexpr absl::string_view kFine = "fine ";  // then a plan's id
constexpr absl::string_view kKeep = "keep";
constexpr absl::string_view kAnew = "anew";
constexpr absl::string_view kOrder = "order ";

std::string ErrorText(const absl::Status& status) {
  return absl::StrCat(kError, EncodeStatus(status));
}

// One item as rank 0 sees it.
struct Offer {
  std::string key;
  uint64_t bytes;
};

std::string ItemKey(absl::string_view fqn, const Box& box) {
  return absl::StrCat(fqn, "\n", absl::StrJoin(box.offsets, ","), "\n",
                      absl::StrJoin(box.sizes, ","));
}

// A rank's items, in order, from the metadata that it sent.
std::vector<Offer> MakeOffers(const Metadata& metadata) {
  std::vector<std::pair<uint64_t, Offer>> numbered;
  for (const MetadataEntry& entry : metadata.entries) {
    if (auto* object = std::get_if<BytesStorageMetadata>(&entry.value)) {
      numbered.push_back({object->storage.offset,
                          {ItemKey(entry.fqn, Box()), object->storage.length}});
      continue;
    }
    for (const auto& chunk :
         std::get<TensorStorageMetadata>(entry.value).chunks) {
      numbered.push_back(
          {chunk.storage.offset,
           {ItemKey(entry.fqn, chunk.box), chunk.storage.length}});
    }
  }
  std::sort(numbered.begin(), numbered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Offer> offers;
  for (auto& [number, offer] : numbered) offers.push_back(std::move(offer));
  return offers;
}

// The items that each rank writes: among the ranks that offer an item, the one
// with the fewest bytes so far gets it.
std::vector<std::vector<size_t>> Assign(
    const std::vector<std::vector<Offer>>& offers) {
  absl::flat_hash_map<absl::string_view, std::vector<std::pair<size_t, size_t>>>
      holders;
  std::vector<absl::string_view> order;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    for (size_t i = 0; i < offers[rank].size(); ++i) {
      auto& of_key = holders[offers[rank][i].key];
      if (of_key.empty()) order.push_back(offers[rank][i].key);
      of_key.emplace_back(rank, i);
    }
  }
  std::vector<uint64_t> bytes(offers.size());
  std::vector<std::vector<size_t>> kept(offers.size());
  for (const absl::string_view key : order) {
    const auto& of_key = holders[key];
    const auto& [rank, item] = *std::min_element(
        of_key.begin(), of_key.end(), [&](const auto& a, const auto& b) {
          return bytes[a.first] < bytes[b.first];
        });
    bytes[rank] += offers[rank][item].bytes;
    kept[rank].push_back(item);
  }
  for (auto& items : kept) std::sort(items.begin(), items.end());
  return kept;
}

absl::StatusOr<std::vector<size_t>> ParseItems(absl::string_view text,
                                               size_t num_items) {
  std::vector<size_t> items;
  for (absl::string_view number :
       absl::StrSplit(text, ',', absl::SkipEmpty())) {
    size_t item = 0;
    if (!absl::SimpleAtoi(number, &item) || item >= num_items) {
      return absl::DataLossError(absl::StrCat("rank 0 asks for item '", number,
                                              "', but this rank has ",
                                              num_items));
    }
    items.push_back(item);
  }
  return items;
}

}  // namespace

Metadata OfferedItems(const SaveState& state) {
  MetadataBuilder builder;
  builder.metadata().files.emplace_back(kPlannedFile);
  uint64_t number = 0;
  for (const SaveTensor& tensor : state.tensors) {
    const uint64_t bytes = static_cast<uint64_t>(Volume(tensor.box.sizes)) *
                           ElementSize(tensor.dtype);
    builder.AddChunk(tensor, {.offset = number++, .length = bytes});
  }
  for (const SaveObject& object : state.objects) {
    builder.AddObject(object, {.offset = number++, .length = 1});
  }
  return std::move(builder.metadata());
}

SaveExchange::SaveExchange(FileSystem& fs, absl::string_view path,
                           const SaveState& state, Coordinator& coordinator,
                           bool overwrite, SavePlanCache* cache)
    : fs_(fs),
      path_(path),
      state_(state),
      coordinator_(coordinator),
      overwrite_(overwrite),
      cache_(cache),
      is_first_(coordinator.rank() == 0),
      has_plan_(cache != nullptr && cache->Holds(state, coordinator.rank(),
                                                 coordinator.num_ranks())) {
  if (has_plan_) items_ = cache->items();
}

absl::Status SaveExchange::End(absl::Status status) {
  phase_ = Phase::kOver;
  status_ = status;
  return status;
}

absl::Status SaveExchange::Meet(const absl::Status& mine) {
  const absl::StatusOr<std::vector<std::string>> greetings =
      coordinator_.Gather(
          mine.ok() ? absl::StrCat(kFine, has_plan_ ? cache_->plan_id() : "")
                    : ErrorText(mine));
  if (!greetings.ok()) return End(greetings.status());
  std::vector<std::string> answers;
  if (is_first_) answers.assign(greetings->size(), Decide(*greetings));
  const absl::StatusOr<std::string> answer =
      coordinator_.Scatter(std::move(answers));
  if (!answer.ok()) return End(answer.status());
  absl::string_view text = *answer;
  if (absl::ConsumePrefix(&text, kError)) return End(DecodeStatus(text));
  if (text != kKeep) has_plan_ = false;
  phase_ = Phase::kMet;
  return absl::OkStatus();
}

// See [Note: one protocol].
std::string SaveExchange::Decide(
    const std::vector<std::string>& greetings) const {
  std::vector<absl::Status> statuses;
  bool keep = has_plan_;
  for (absl::string_view greeting : greetings) {
    absl::Status& status = statuses.emplace_back();
    if (absl::ConsumePrefix(&greeting, kFine)) {
      keep = keep && greeting == cache_->plan_id();
    } else {
      absl::ConsumePrefix(&greeting, kError);
      status = DecodeStatus(greeting);
    }
  }
  const absl::Status error = FirstError(statuses);
  if (!error.ok()) return ErrorText(error);
  return std::string(keep ? kKeep : kAnew);
}

absl::Status SaveExchange::Receive(const absl::Status& mine) {
  const auto offers = Offers();
  if (!offers.ok()) return End(offers.status());
  std::vector<std::string> orders;
  if (is_first_) {
    orders.resize(static_cast<size_t>(coordinator_.num_ranks()));
    const absl::Status made = mine.ok() ? MakeOrders(*offers, orders) : mine;
    if (!made.ok()) {
      orders.assign(orders.size(), ErrorText(Annotate(made, "rank 0")));
    }
  }
  const absl::StatusOr<std::string> order =
      coordinator_.Scatter(std::move(orders));
  if (!order.ok()) return End(order.status());
  absl::string_view text = *order;
  if (absl::ConsumePrefix(&text, kError)) return End(DecodeStatus(text));
  phase_ = Phase::kOrdered;
  if (!is_first_) destination_ = AttachToDestination(fs_, path_);
  return Accept(text);
}

// On rank 0, the items of all ranks; empty if the plan is kept.
absl::StatusOr<std::vector<std::string>> SaveExchange::Offers() {
  if (has_plan_) return std::vector<std::string>();
  return coordinator_.Gather(WriteDcpMetadata(OfferedItems(state_)));
}

// Called on rank 0.
absl::Status SaveExchange::MakeOrders(const std::vector<std::string>& all,
                                      std::vector<std::string>& orders) {
  std::string plan_id;
  std::vector<std::vector<size_t>> kept(orders.size());
  if (!has_plan_) {
    std::vector<std::vector<Offer>> offers;
    MetadataBuilder merged;
    for (const std::string& bytes : all) {
      DCP_ASSIGN_OR_RETURN(Metadata metadata, ParseDcpMetadata(AsBytes(bytes)));
      offers.push_back(MakeOffers(metadata));
      DCP_RETURN_IF_ERROR(merged.Merge(std::move(metadata)));
    }
    DCP_RETURN_IF_ERROR(merged.CheckWhole());
    kept = Assign(offers);
    plan_id = NewSaveId();
  }
  DCP_RETURN_IF_ERROR(Begin());
  for (size_t rank = 0; rank < orders.size(); ++rank) {
    const std::string name =
        destination_->NextDataFileName(static_cast<int64_t>(rank));
    destination_->Created(name);
    orders[rank] = absl::StrCat(kOrder, name, "\n", plan_id, "\n",
                                absl::StrJoin(kept[rank], ","));
  }
  return absl::OkStatus();
}

absl::Status SaveExchange::Begin() {
  DCP_ASSIGN_OR_RETURN(
      destination_,
      PlanDestination(fs_, path_, Destination::Kind::kDcpDirectory, overwrite_,
                      {}, "a save"));
  return destination_->Begin();
}

// "<order><file name>\n<plan id>\n<number>,<number>,..."
absl::Status SaveExchange::Accept(absl::string_view order) {
  const std::vector<std::string> parts = absl::StrSplit(order, '\n');
  if (!absl::ConsumePrefix(&order, kOrder) || parts.size() != 3) {
    return absl::DataLossError(
        "expected an order from rank 0, found something else");
  }
  file_name_ = parts[0].substr(kOrder.size());
  if (has_plan_) return absl::OkStatus();
  DCP_ASSIGN_OR_RETURN(items_, ParseItems(parts[2], state_.tensors.size() +
                                                        state_.objects.size()));
  has_plan_ = true;
  if (cache_ != nullptr) {
    cache_->Store(state_, coordinator_.rank(), coordinator_.num_ranks(),
                  parts[1], items_);
  }
  return absl::OkStatus();
}

}  // namespace dcp
