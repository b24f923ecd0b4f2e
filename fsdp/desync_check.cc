#include "fsdp/desync_check.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fsdp/fsdp_param_group.h"
#include "fsdp/fsdp_state.h"
#include "fsdp/process_group.h"
#include "fsdp/work.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace fsdp {
namespace {

std::atomic<bool>& Enabled() {
  static std::atomic<bool> enabled = [] {
    const char* value = std::getenv("TESSERA_FSDP_DEBUG");
    return value != nullptr && std::string(value) == "1";
  }();
  return enabled;
}

// How many collectives this process has announced, by process group.
uint64_t NextNumber(const c10d::ProcessGroup& group) {
  static auto* numbers =
      new std::unordered_map<const c10d::ProcessGroup*, uint64_t>;
  return (*numbers)[&group]++;
}

std::string Key(const std::string& group, uint64_t number, int64_t rank) {
  return absl::StrCat("in_step/", group, "/", number, "/", rank);
}

std::vector<uint8_t> AsBytes(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace

void set_debug_mode(bool enabled) { Enabled() = enabled; }

bool debug_mode() { return Enabled(); }

void CheckInStep(const FsdpParamGroup& group, const char* collective,
                 const std::string& op) {
  if (!debug_mode()) return;
  const ProcessGroup& ranks = group.config().shard_group;
  if (ranks->getSize() == 1) return;
  const auto store = job_store();
  const uint64_t number = NextNumber(*ranks);
  // Slices of one mesh have groups of one name: the first member tells them
  // apart.
  const std::string name = absl::StrCat(ranks->getGroupName(), ".",
                                        get_process_group_ranks(ranks).front());
  const std::string mine =
      absl::StrCat(collective, " of '", group.state().name(), "'");
  store->set(Key(name, number, ranks->getRank()),
             AsBytes(absl::StrCat(mine, "\n", op)));
  std::vector<std::string> missing;
  std::vector<std::string> said;
  bool differs = false;
  for (int64_t rank = 0; rank < ranks->getSize(); ++rank) {
    const std::string key = Key(name, number, rank);
    if (!ErrorTextOf([&] { store->wait({key}); }).empty()) {
      missing.push_back(absl::StrCat("rank ", rank));
      continue;
    }
    const std::vector<uint8_t> bytes = store->get(key);
    const std::string text(bytes.begin(), bytes.end());
    const size_t end = text.find('\n');
    differs |= text.substr(0, end) != mine;
    said.push_back(absl::StrCat("rank ", rank, " is at the ",
                                text.substr(0, end), " for ",
                                text.substr(end + 1)));
  }
  TORCH_CHECK(missing.empty(), "fsdp: ", describe(*ranks), " is at the ", mine,
              " for ", op, ", but never came: ", absl::StrJoin(missing, ", "));
  TORCH_CHECK(!differs, "fsdp: the ranks of ", describe(*ranks),
              " have diverged at collective ", number, ": ",
              absl::StrJoin(said, "; "));
  // The other ranks have read what was said two collectives ago.
  if (number >= 2) store->deleteKey(Key(name, number - 2, ranks->getRank()));
}

}  // namespace fsdp
