// SPDX-License-Identifier: Apache-2.0
// PreemptionNotice: whether SIGTERM has asked this process to end. While a
// notice lives, the signal sets a flag and does nothing else. Made and
// destroyed by the thread that trains; any thread may ask.
#ifndef FSDP_CHECKPOINT_PREEMPTION_H_
#define FSDP_CHECKPOINT_PREEMPTION_H_

namespace fsdp {

class PreemptionNotice {
 public:
  // The first notice installs the signal's handler; the last one restores the
  // previous handler and clears the flag.
  PreemptionNotice();
  ~PreemptionNotice();
  PreemptionNotice(const PreemptionNotice&) = delete;
  PreemptionNotice& operator=(const PreemptionNotice&) = delete;

  bool came() const;
};

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_PREEMPTION_H_
