// SPDX-License-Identifier: Apache-2.0
// Entries from a small made-up checkpoint, for tests of the output.
#ifndef TESTS_TOOLS_DCP_CONVERT_SAMPLE_ENTRIES_H_
#define TESTS_TOOLS_DCP_CONVERT_SAMPLE_ENTRIES_H_

#include <string>
#include <utility>
#include <vector>

#include "dcp/checkpoint/open/checkpoint.h"

namespace dcp::tools {

// A 4 x 3 float32 tensor in two chunks, "w"; a scalar int64 in the first of two
// files, "step"; an object that is read, "lr"; and one that is not, "hidden".
inline std::vector<CheckpointEntry> SampleEntries() {
  const auto item = [](uint32_t file, uint64_t offset, uint64_t length) {
    ChunkLocation location;
    location.item = {.file = file, .offset = offset, .length = length};
    return location;
  };
  TensorEntry w;
  w.dtype = DType::kFloat32;
  w.shape = {4, 3};
  w.boxes = {Box{{0, 0}, {2, 3}}, Box{{2, 0}, {2, 3}}};
  w.locations = {item(0, 0, 100), item(1, 0, 200)};
  TensorEntry step;
  step.dtype = DType::kInt64;
  step.boxes = {Box{}};
  step.locations = {item(0, 100, 50)};
  ObjectEntry lr;
  lr.located = true;
  lr.value = Value::Float(0.5);
  std::vector<CheckpointEntry> entries(4);
  entries[0].fqn = "w";
  entries[0].value = std::move(w);
  entries[1].fqn = "step";
  entries[1].value = std::move(step);
  entries[2].fqn = "lr";
  entries[2].value = std::move(lr);
  entries[3].fqn = "hidden";
  entries[3].value = ObjectEntry();
  return entries;
}

}  // namespace dcp::tools

#endif  // TESTS_TOOLS_DCP_CONVERT_SAMPLE_ENTRIES_H_
