// SPDX-License-Identifier: Apache-2.0

#include "server/jobs/journal_watch.h"

#include <utility>

#include "absl/memory/memory.h"
#include "dcp/base/log.h"
#include "dcp/base/status.h"
#include "server/process/log_text.h"

namespace dcp::server {

absl::StatusOr<std::unique_ptr<JournalWatch>> JournalWatch::Start(
    const JobJournal& journal, absl::Duration interval,
    std::function<void(const absl::Status&)> changed) {
  std::unique_ptr<JournalWatch> watch =
      absl::WrapUnique(new JournalWatch(journal, interval, std::move(changed)));
  watch->Look();
  DCP_ASSIGN_OR_RETURN(watch->thread_,
                       Thread::Start([watch = watch.get()] { watch->Run(); }));
  return watch;
}

JournalWatch::JournalWatch(const JobJournal& journal, absl::Duration interval,
                           std::function<void(const absl::Status&)> changed)
    : journal_(journal), interval_(interval), changed_(std::move(changed)) {}

JournalWatch::~JournalWatch() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    ends_.SignalAll();
  }
  thread_.reset();
}

void JournalWatch::Look() {
  const absl::Status status = journal_.CheckUsable();
  const bool is_first = !last_.has_value();
  if (std::exchange(last_, status.code()) == status.code()) return;
  if (!status.ok()) {
    DCP_LOG(kError) << "event=journal_unusable error="
                    << LogText(status.message());
  } else if (!is_first) {
    DCP_LOG(kInfo) << "event=journal_usable";
  }
  changed_(status);
}

void JournalWatch::Run() {
  absl::MutexLock lock(&mutex_);
  while (!ending_) {
    const absl::Duration end = SteadyNow() + interval_;
    while (!ending_ && !ends_.WaitUntil(&mutex_, end)) {
    }
    if (ending_) return;
    mutex_.Unlock();
    Look();
    mutex_.Lock();
  }
}

}  // namespace dcp::server
