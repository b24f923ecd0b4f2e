// Writes a training config in a dialect, whatever it was read from. Any thread.
#ifndef CONFIG_WRITE_CONFIG_H_
#define CONFIG_WRITE_CONFIG_H_

#include <string>

#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp {

// A whole file of the dialect, always for FSDP2. What the dialect cannot
// express is in `findings`, as changed; the rest reads back as the same
// training. A degree of the mesh that it cannot express, or only as other
// ranks, is a problem, and the text is then empty.
std::string write_config(const TrainConfig& config, Dialect dialect,
                         Findings& findings);

}  // namespace fsdp

#endif  // CONFIG_WRITE_CONFIG_H_
