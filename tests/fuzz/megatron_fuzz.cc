// SPDX-License-Identifier: Apache-2.0
// Opens Megatron-core checkpoints with any bytes as index and common state,
// with every option, and checks the places of the tensors that it finds.
//
// The input is .metadata, then kSplit and the pickle from common.pt, if any.
// The data file __0_0.distcp has an item at every multiple of kItemBytes: a
// tensor with twelve numbers, in the shape [1, 1, 12], [1, 12], [12], [1, 3, 4]
// or
// [2, 3, 2] in turn, or a list with one dict.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "dcp/base/check.h"
#include "dcp/checkpoint/open/checkpoint.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/torch/torch_archive_layout.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/io/file_system.h"
#include "dcp/tensor/box.h"
#include "tests/fuzz/placed_tensors.h"
#include "tests/testing/sim_storage.h"

namespace dcp {
namespace {

constexpr absl::string_view kSplit = "====";
constexpr absl::string_view kConfig =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1})";

// From one item to the next.
constexpr size_t kItemBytes = 2048;
constexpr size_t kNumItems = 36;
constexpr size_t kPayloadBytes = 12 * sizeof(float);

// An archive with `pickle` and one storage.
std::string MakeArchive(const std::string& pickle) {
  const std::vector<uint64_t> lengths = {kPayloadBytes};
  const TorchArchiveLayout layout("archive", pickle, lengths);
  const std::vector<uint32_t> crcs = {0};
  return absl::StrCat(layout.Gap(0, crcs), std::string(kPayloadBytes, 'x'),
                      layout.Gap(1, crcs));
}

std::string DataFile() {
  const std::vector<Dims> shapes = {
      {1, 1, 12}, {1, 12}, {12}, {1, 3, 4}, {2, 3, 2}};
  ValueArena arena;
  std::string file;
  for (size_t i = 0; i < kNumItems; ++i) {
    const size_t kind = i % (shapes.size() + 1);
    const Value value =
        kind < shapes.size()
            ? MakeTensor(arena, DType::kFloat32, shapes[kind],
                         /*requires_grad=*/false, "0")
            : arena.List({arena.Dict({arena.Str("iteration"), Value::Int(7)})});
    file += MakeArchive(WritePickle(value));
    DCP_CHECK(file.size() <= (i + 1) * kItemBytes);
    file.resize((i + 1) * kItemBytes);
  }
  return file;
}

void Run(absl::string_view input) {
  static const std::string& data = *new std::string(DataFile());
  testing::SimStorage storage;
  const auto write = [&](absl::string_view name, absl::string_view bytes) {
    DCP_CHECK(WriteFile(storage, absl::StrCat("c/", name), bytes).ok());
  };
  DCP_CHECK(storage.MakeDirectory("c").ok());
  const size_t split = input.find(kSplit);
  write(".metadata", input.substr(0, split));
  write("metadata.json", kConfig);
  write("__0_0.distcp", data);
  if (split != absl::string_view::npos) {
    write("common.pt",
          MakeArchive(std::string(input.substr(split + kSplit.size()))));
  }
  for (const bool change : {false, true}) {
    OpenOptions options;
    options.dialect.unstack_layers = change;
    options.dialect.torch_optimizer_names = change;
    const auto checkpoint = Checkpoint::Open(storage, "c", options);
    if (!checkpoint.ok()) return;
    DCP_CHECK((*checkpoint)->dialect() == Dialect::kMegatron);
    // Tensors that can be located must be in bounds, even if other items are
    // damaged.
    for (uint32_t i = 0; i < (*checkpoint)->entries().size(); ++i) {
      if (!(*checkpoint)->Locate({i}).ok()) break;
    }
    testing::CheckPlaces(**checkpoint);
  }
}

}  // namespace
}  // namespace dcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dcp::Run(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
