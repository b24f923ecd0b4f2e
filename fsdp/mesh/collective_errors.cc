// SPDX-License-Identifier: Apache-2.0
// Waits for collectives and adds context to their errors.
//
// Tested by tests/fsdp/mesh/process_group_test.cc.
#include "fsdp/mesh/collective_errors.h"

#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"

namespace fsdp {
namespace {

std::string FailureContext(const c10d::ProcessGroup& group,
                           const std::string& operation) {
  return absl::StrCat(describe(group), ": ", operation,
                      " failed (has another rank died, or made other calls?)");
}

}  // namespace

std::string describe(const c10d::ProcessGroup& group) {
  return absl::StrCat("rank ", group.getRank(), " of ", group.getSize(),
                      " in group \"", group.getGroupDesc(), "\"");
}

std::string CatchErrorText(absl::FunctionRef<void()> call) {
  // A backend may throw anything; Gloo's errors are not even LibTorch's.
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void WithContext(absl::FunctionRef<std::string()> context,
                 absl::FunctionRef<void()> call) {
  const std::string text = CatchErrorText(call);
  if (text.empty()) return;
  TORCH_CHECK_WITH(DistBackendError, false, context(), ": ", text);
}

void WaitForWork(const c10::intrusive_ptr<c10d::Work>& work,
                 const c10d::ProcessGroup& group,
                 absl::FunctionRef<std::string()> operation) {
  if (!work) return;
  WithContext([&] { return FailureContext(group, operation()); },
              [&] { TORCH_CHECK(work->wait(), "it was aborted"); });
}

void WaitForWork(const c10::intrusive_ptr<c10d::Work>& work,
                 const c10d::ProcessGroup& group, const char* operation) {
  WaitForWork(work, group, [&] { return std::string(operation); });
}

c10::intrusive_ptr<c10d::Work> IssueWork(
    const c10d::ProcessGroup& group, absl::FunctionRef<std::string()> operation,
    absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> issue) {
  c10::intrusive_ptr<c10d::Work> work;
  WithContext([&] { return FailureContext(group, operation()); },
              [&] { work = issue(); });
  return work;
}

c10::intrusive_ptr<c10d::Work> IssueWork(
    const c10d::ProcessGroup& group, const char* operation,
    absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> issue) {
  return IssueWork(
      group, [&] { return std::string(operation); }, issue);
}

void IssueAndWait(const c10d::ProcessGroup& group, const char* operation,
                  absl::FunctionRef<c10::intrusive_ptr<c10d::Work>()> issue) {
  WaitForWork(IssueWork(group, operation, issue), group, operation);
}

}  // namespace fsdp
