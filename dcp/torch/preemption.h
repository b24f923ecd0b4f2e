// PreemptionNotice: whether SIGTERM has asked this process to end. While one
// lives, the signal sets a flag and does nothing else. Made and destroyed by
// the thread that trains; asked from any.
#ifndef DCP_TORCH_PREEMPTION_H_
#define DCP_TORCH_PREEMPTION_H_

namespace dcp {

class PreemptionNotice {
 public:
  // The first one takes the signal, the last one gives it back to what had it
  // before, and forgets.
  PreemptionNotice();
  ~PreemptionNotice();
  PreemptionNotice(const PreemptionNotice&) = delete;
  PreemptionNotice& operator=(const PreemptionNotice&) = delete;

  bool came() const;
};

}  // namespace dcp

#endif  // DCP_TORCH_PREEMPTION_H_
