// SPDX-License-Identifier: Apache-2.0
// Collective errors that name rank, group and operation. A backend's own errors
// say what broke on the wire but nothing about the job. The engine catches and
// rethrows errors only here. For the thread that issues the collective.
#ifndef FSDP_MESH_COLLECTIVE_ERRORS_H_
#define FSDP_MESH_COLLECTIVE_ERRORS_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace fsdp {

// "rank 1 of 4 in group \"shard\"".
std::string describe(const c10d::ProcessGroup& group);

// Waits until `work` of `group` is done, or, on a GPU, makes the current stream
// wait for it. Throws c10::DistBackendError when the work failed or did not end
// within the group's timeout. `operation` is for the error: "all-gather of
// layers.3". A null `work` counts as done.
void WaitForWork(const c10::intrusive_ptr<c10d::Work>& work,
                 const c10d::ProcessGroup& group,
                 absl::FunctionRef<std::string()> operation);
void WaitForWork(const c10::intrusive_ptr<c10d::Work>& work,
                 const c10d::ProcessGroup& group, const char* operation);

// Issues a collective: calls `issue` and returns the work. Errors are treated
// as in WaitForWork: Gloo already raises some when a collective is issued, for
// example when the receiving rank is gone.
c10::intrusive_ptr<c10d::Work> IssueWork(
    const c10d::ProcessGroup& group, absl::FunctionRef<std::string()> operation,
    absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> issue);
c10::intrusive_ptr<c10d::Work> IssueWork(
    const c10d::ProcessGroup& group, const char* operation,
    absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> issue);

// Issues a collective and waits for it.
void IssueAndWait(const c10d::ProcessGroup& group, const char* operation,
                  absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> issue);

// Calls `call`. An error becomes a c10::DistBackendError that begins with the
// result of `context`, which is called only in that case.
void WithContext(absl::FunctionRef<std::string()> context,
                 absl::FunctionRef<void()> call);

// Calls `call` and returns the error's text, or an empty text; for destructors,
// and for joining errors from several ranks.
std::string CatchErrorText(absl::FunctionRef<void()> call);

}  // namespace fsdp

#endif  // FSDP_MESH_COLLECTIVE_ERRORS_H_
