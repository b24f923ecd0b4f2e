// SPDX-License-Identifier: Apache-2.0

#include "server/process/forced_end.h"

#include <unistd.h>

#include "dcp/base/log.h"

namespace dcp::server {

void ForcedEnd::Within(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  const absl::Status started =
      alarms_.emplace_back().Start(time, [this] { End(); });
  if (started.ok()) return;
  DCP_LOG(kWarning) << "event=stop_not_forced why=\"" << started.message()
                    << "\"";
}

void ForcedEnd::End() {
  DCP_LOG(kError) << "event=stop_forced why=\"a file system does not answer "
                     "and holds threads of the server; unfinished jobs go on "
                     "at the next start\"";
  flush_();
  _exit(exit_code_);
}

}  // namespace dcp::server
