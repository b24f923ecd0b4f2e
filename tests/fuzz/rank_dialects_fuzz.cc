// SPDX-License-Identifier: Apache-2.0
// Opens checkpoints from DeepSpeed, accelerate and the Trainer, and with one
// pickle for each rank. The pickles are any bytes. Checks the places of the
// tensors that it finds.
//
// The input's first byte chooses the file names. The rest are their pickles,
// with kSplit between them; the last pickle fills the remaining files.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "dcp/base/check.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/torch/torch_archive_layout.h"
#include "dcp/io/file_system.h"
#include "tests/fuzz/placed_tensors.h"
#include "tests/testing/sim_storage.h"

namespace dcp {
namespace {

constexpr absl::string_view kSplit = "====";

// Every archive has as many storages with this size, "0" and so on.
constexpr size_t kNumStorages = 64;
constexpr size_t kStorageBytes = 1280;

struct Layout {
  std::vector<std::string> files;
  bool has_layout = false;  // the first pickle is a flat layout's text
};

const std::vector<Layout>& Layouts() {
  static const std::vector<Layout>& layouts = *new std::vector<Layout>{
      {{"model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt",
        "optim_world_size_2_rank_0.pt", "optim_world_size_2_rank_1.pt"}},
      {{"a.rank_0.pt", "a.rank_1.pt"}},
      {{"a.rank_0.pt", "a.rank_1.pt"}, /*has_layout=*/true},
      {{"mp_rank_00_model_states.pt",
        "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "zero_pp_rank_1_mp_rank_00_optim_states.pt"}},
      {{"zero_pp_rank_0_mp_rank_00_model_states.pt",
        "zero_pp_rank_1_mp_rank_00_model_states.pt",
        "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "zero_pp_rank_1_mp_rank_00_optim_states.pt"}},
      {{"mp_rank_00_model_states.pt", "zero/optimizer_state.pt",
        "zero/embed.weight/fp32.pt", "zero/embed.weight/exp_avg.pt",
        "zero/embed.weight/step.pt"}},
      {{"pytorch_model_fsdp_0_rank0.bin", "pytorch_model_fsdp_0_rank1.bin",
        "optimizer.bin", "random_states_0.pkl", "random_states_1.pkl"}},
      {{"trainer_state.json", "pytorch_model.bin", "optimizer.pt",
        "rng_state.pth"}},
  };
  return layouts;
}

std::string MakeArchive(absl::string_view pickle) {
  const std::vector<uint64_t> lengths(kNumStorages, kStorageBytes);
  const std::vector<uint32_t> crcs(kNumStorages, 0);
  const TorchArchiveLayout layout("archive", std::string(pickle), lengths);
  std::string bytes;
  for (size_t i = 0; i < kNumStorages; ++i) {
    bytes += layout.Gap(i, crcs);
    bytes.append(kStorageBytes, static_cast<char>(i));
  }
  return bytes + layout.Gap(kNumStorages, crcs);
}

void Run(absl::string_view input) {
  if (input.empty()) return;
  const Layout& layout =
      Layouts()[static_cast<uint8_t>(input[0]) % Layouts().size()];
  std::vector<absl::string_view> pickles =
      absl::StrSplit(input.substr(1), kSplit);
  testing::SimStorage storage;
  for (const char* directory : {"c", "c/zero", "c/zero/embed.weight"}) {
    // Folders of other layouts must not be there.
    const bool is_used = absl::StrContains(
        absl::StrCat("c/", layout.files.back()), absl::StrCat(directory, "/"));
    if (is_used) DCP_CHECK(storage.MakeDirectory(directory).ok());
  }
  OpenOptions options;
  if (layout.has_layout) {
    DCP_CHECK(WriteFile(storage, "layout.json", pickles[0]).ok());
    options.dialect.layout = "layout.json";
    if (pickles.size() > 1) pickles.erase(pickles.begin());
  }
  for (size_t i = 0; i < layout.files.size(); ++i) {
    const absl::string_view pickle = pickles[std::min(i, pickles.size() - 1)];
    const std::string& name = layout.files[i];
    const bool is_json = absl::EndsWith(name, ".json");
    DCP_CHECK(WriteFile(storage, absl::StrCat("c/", name),
                        is_json ? std::string(pickle) : MakeArchive(pickle))
                  .ok());
  }
  const auto checkpoint = Checkpoint::Open(storage, "c", options);
  if (checkpoint.ok()) testing::CheckPlaces(**checkpoint);
}

}  // namespace
}  // namespace dcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dcp::Run(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
