// SPDX-License-Identifier: Apache-2.0
// Reads configs of axolotl; config/README.md describes each reader and writer.
// Any thread.
#ifndef CONFIG_DIALECTS_AXOLOTL_AXOLOTL_H_
#define CONFIG_DIALECTS_AXOLOTL_AXOLOTL_H_

#include "config/document/document.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp::config {

void ReadAxolotl(const Node& root, TrainConfig& config, Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_AXOLOTL_AXOLOTL_H_
