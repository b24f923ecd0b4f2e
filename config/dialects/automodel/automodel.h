// SPDX-License-Identifier: Apache-2.0
// Reads configs of NeMo Automodel; "Programs that are read by tables" in
// config/README.md describes each dialect. Any thread.
#ifndef CONFIG_DIALECTS_AUTOMODEL_AUTOMODEL_H_
#define CONFIG_DIALECTS_AUTOMODEL_AUTOMODEL_H_

#include "config/document/document.h"
#include "config/document/findings.h"
#include "config/model/train_config.h"

namespace fsdp::config {

void ReadAutomodel(const Node& root, TrainConfig& config, Findings& findings);

}  // namespace fsdp::config

#endif  // CONFIG_DIALECTS_AUTOMODEL_AUTOMODEL_H_
