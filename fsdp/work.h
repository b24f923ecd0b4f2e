// Waiting for collectives, so that whatever goes wrong ends in an error that
// names rank, group and operation: backends say what broke on the wire and
// nothing about the job. The only place of the engine where errors of others
// are taken and raised anew. For the thread that issued the collective.
#ifndef FSDP_WORK_H_
#define FSDP_WORK_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace fsdp {

// Waits until `work` of `group` is done, or, on a GPU, until the current
// stream will have waited for it. Throws c10::DistBackendError when it failed
// or did not end in the group's timeout. `operation` is for people:
// "all-gather of layers.3". A null `work` is done.
void WaitForWork(const c10::intrusive_ptr<c10d::Work>& work,
                 const c10d::ProcessGroup& group,
                 absl::FunctionRef<std::string()> operation);
void WaitForWork(const c10::intrusive_ptr<c10d::Work>& work,
                 const c10d::ProcessGroup& group, const char* operation);

// Issues a collective: calls `issue` and returns its work, with errors treated
// likewise: Gloo raises some where a collective is issued, such as sending to a
// rank that has gone.
c10::intrusive_ptr<c10d::Work> IssueWork(
    const c10d::ProcessGroup& group, absl::FunctionRef<std::string()> operation,
    absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> issue);
c10::intrusive_ptr<c10d::Work> IssueWork(
    const c10d::ProcessGroup& group, const char* operation,
    absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> issue);

// Issues a collective and waits for it.
void IssueAndWait(const c10d::ProcessGroup& group, const char* operation,
                  absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> issue);

// Calls `call`; an error becomes a c10::DistBackendError that begins with
// `context`, which is only asked for then.
void WithContext(absl::FunctionRef<std::string()> context,
                 absl::FunctionRef<void()> call);

// Calls `call` and returns the text of the error that it ended with, or an
// empty one; for destructors and for joining what several ranks found.
std::string ErrorTextOf(absl::FunctionRef<void()> call);

}  // namespace fsdp

#endif  // FSDP_WORK_H_
