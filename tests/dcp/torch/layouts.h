// States of a training job on several meshes: the same values everywhere, so
// that what one mesh saved and another loaded can be compared with what it
// should be. In ranks that have their process group.
#ifndef TESTS_DCP_TORCH_LAYOUTS_H_
#define TESTS_DCP_TORCH_LAYOUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "dcp/torch/state_value.h"
#include "fsdp/device_mesh.h"
#include "fsdp/dtensor.h"
#include "fsdp/placement.h"

namespace dcp::testing {

// How a state lies: the shape of the mesh, and placements of its matrices.
struct Layout {
  std::string name;
  std::vector<int64_t> mesh;
  fsdp::Placements placements;

  int world() const;
};

// Each on 1 to 4 ranks.
std::vector<Layout> Layouts();

fsdp::DeviceMesh MeshOf(const Layout& layout);

// Every value known: 7 rows and 5 columns divide by nothing.
at::Tensor Whole(int64_t seed, at::ScalarType type = at::kFloat);

fsdp::DTensor Placed(const at::Tensor& whole, const fsdp::DeviceMesh& mesh,
                     const fsdp::Placements& placements);

// As a training job has it; `filled` false: with other values everywhere.
StateDict StateOf(const Layout& layout, const fsdp::DeviceMesh& mesh,
                  bool filled);

// Fails the test where `actual` lacks something of `expected` or differs.
void ExpectEqual(const StateValue& actual, const StateValue& expected,
                 const std::string& name);

}  // namespace dcp::testing

#endif  // TESTS_DCP_TORCH_LAYOUTS_H_
