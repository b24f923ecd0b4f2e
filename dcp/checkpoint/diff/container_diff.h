// SPDX-License-Identifier: Apache-2.0
// Part of diff: whether two .pt files hold their values in containers of the
// same types, under keys of the same types. Other formats record neither. Pure.
#ifndef DCP_CHECKPOINT_DIFF_CONTAINER_DIFF_H_
#define DCP_CHECKPOINT_DIFF_CONTAINER_DIFF_H_

#include "absl/status/status.h"
#include "dcp/checkpoint/diff/diff_report.h"
#include "dcp/checkpoint/mapped/selection.h"
#include "dcp/checkpoint/open/checkpoint.h"

namespace dcp {

struct ContainerSide {
  const Checkpoint& checkpoint;
  const SelectionOptions& selection;  // include and exclude
};

// Adds a finding, by name, for every container that differs and for every empty
// container that only one side has; or reports why the two cannot be compared.
// Does not compare values.
absl::Status CompareContainers(const ContainerSide& a, const ContainerSide& b,
                               DiffReport& report);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_DIFF_CONTAINER_DIFF_H_
