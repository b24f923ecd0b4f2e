// SPDX-License-Identifier: Apache-2.0
// A training job's states on several meshes. The values are the same
// everywhere, so that a state saved on one mesh and loaded on another can be
// compared with the expected one. For ranks that have a process group.
#ifndef TESTS_FSDP_CHECKPOINT_LAYOUTS_H_
#define TESTS_FSDP_CHECKPOINT_LAYOUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/placement.h"

namespace fsdp::testing {

// A state's layout: the mesh shape, and the matrices' placements.
struct Layout {
  std::string name;
  std::vector<int64_t> mesh;
  Placements placements;

  int world() const;
};

// Each is for 1 to 4 ranks.
std::vector<Layout> Layouts();

DeviceMesh MakeMesh(const Layout& layout);

// All values are known; 7 rows and 5 columns do not divide evenly.
at::Tensor Whole(int64_t seed, at::ScalarType type = at::kFloat);

DTensor Placed(const at::Tensor& whole, const DeviceMesh& mesh,
               const Placements& placements);

// A state as a training job has it; `filled` false: all values differ.
StateDict MakeState(const Layout& layout, const DeviceMesh& mesh, bool filled);

// Fails the test if `actual` lacks any part of `expected` or differs from it.
void ExpectEqual(const StateValue& actual, const StateValue& expected,
                 const std::string& name);

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_CHECKPOINT_LAYOUTS_H_
