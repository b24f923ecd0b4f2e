// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a rule file, and the bytes after the first line "---" as a
// config.json. A valid rule file is applied to a small model that is made up
// for it. If the model becomes another side, all pieces fit their tensors. If
// that comes back, it has the same bits as before, which CheckRoundTrip and
// TryMapping find out in different ways.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/check.h"
#include "dcp/mapping/application/mapping.h"
#include "dcp/mapping/application/name_spelling.h"
#include "dcp/mapping/trial/invented_model.h"
#include "dcp/mapping/trial/mapping_trial.h"
#include "dcp/mapping/trial/round_trip.h"
#include "dcp/plan/strided/strided_piece.h"
#include "dcp/tensor/box.h"

namespace dcp {
namespace {

constexpr absl::string_view kConfigFollows = "\n---\n";
// An input that asks for more would take too long.
constexpr size_t kMaxTensors = 2000;
constexpr int64_t kMaxElements = 1 << 16;

bool IsSmall(const std::vector<MappingTensor>& tensors) {
  int64_t num_elements = 0;
  for (const MappingTensor& tensor : tensors) {
    num_elements += CheckedVolume(tensor.shape).value_or(kMaxElements);
    if (num_elements >= kMaxElements) return false;
  }
  return tensors.size() <= kMaxTensors;
}

void CheckPieces(const std::vector<MappingTensor>& sources,
                 const MappedTensors& mapped) {
  for (const StridedPiece& piece : mapped.pieces) {
    const bool is_zero = piece.src == StridedPiece::kZeros;
    const absl::Status checked =
        CheckStridedPiece(piece, is_zero ? Dims() : sources.at(piece.src).shape,
                          mapped.tensors.at(piece.dst).shape);
    DCP_CHECK(checked.ok(), checked.message());
  }
}

// Between the pivot and one side.
void Try(const Mapping& mapping, const Invention& invention) {
  const absl::StatusOr<InventedModel> model = InventModel(mapping, invention);
  if (!model.ok() || !IsSmall(model->tensors)) return;
  const MapOptions options = {.from = mapping.file().pivot(),
                              .to = invention.side,
                              .config = invention.config,
                              .settings = model->settings};
  const absl::StatusOr<MappedTensors> mapped =
      mapping.Map(model->tensors, options);
  if (!mapped.ok() || !IsSmall(mapped->tensors)) return;
  CheckPieces(model->tensors, *mapped);
  const absl::StatusOr<RoundTrip> trip =
      CheckRoundTrip(mapping, model->tensors, options);
  if (!trip.ok()) return;
  const absl::StatusOr<MappingTrial> trial =
      TryMapping(mapping, model->tensors, options, invention.seed);
  DCP_CHECK(trial.ok(), trial.status().message());
}

void TryAll(absl::string_view input) {
  const size_t end = input.find(kConfigFollows);
  const absl::StatusOr<Mapping> mapping =
      ParseMapping(input.substr(0, end), "fuzz.yaml");
  if (!mapping.ok()) return;
  const std::string config(end == absl::string_view::npos
                               ? absl::string_view()
                               : input.substr(end + kConfigFollows.size()));
  const std::vector<std::string> names = {"a", "model.layers.0.norm.weight"};
  for (size_t n = 1; n < mapping->sides().size() && n < 4; ++n) {
    const std::string side = mapping->sides()[n];
    (void)FirstUnknownName(mapping->file(), side, names, config, {});
    Try(*mapping, {.side = side, .config = config});
    Try(*mapping, {.side = side, .config = config, .states = true});
  }
}

}  // namespace
}  // namespace dcp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dcp::TryAll(dcp::AsText(dcp::ByteSpan(data, size)));
  return 0;
}
