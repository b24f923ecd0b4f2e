// SPDX-License-Identifier: Apache-2.0
// Training on LibTorch: a program includes only this header to shard, train,
// save and load a model, and to prepare it by a config. fsdp/README.md begins
// with a whole program. docs/compatibility.md says which parts stay from
// release to release.
#ifndef TESSERA_FSDP_H_
#define TESSERA_FSDP_H_

// IWYU pragma: begin_exports
#include "config/dialect_table.h"
#include "config/explain/explain.h"
#include "config/read_config.h"
#include "config/write_config.h"
#include "fsdp/averaging/averaged_model.h"
#include "fsdp/averaging/averages_scope.h"
#include "fsdp/checkpoint/checkpoint_manager.h"
#include "fsdp/checkpoint/export.h"
#include "fsdp/checkpoint/preemption.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state_dict.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/extensions/float8.h"
#include "fsdp/extensions/nf4.h"
#include "fsdp/forward.h"
#include "fsdp/fsdp_module.h"
#include "fsdp/fully_shard.h"
#include "fsdp/mesh/device_mesh.h"
#include "fsdp/mesh/dtensor.h"
#include "fsdp/mesh/mesh_collectives.h"
#include "fsdp/mesh/parallel_dims.h"
#include "fsdp/mesh/process_group.h"
#include "fsdp/module/activation_checkpoint.h"
#include "fsdp/module/activation_offload.h"
#include "fsdp/module/init.h"
#include "fsdp/module/init_defaults.h"
#include "fsdp/module/materialize.h"
#include "fsdp/module/names.h"
#include "fsdp/module/tied_parameters.h"
#include "fsdp/module/wrap.h"
#include "fsdp/optim/clip_grad_norm.h"
#include "fsdp/optim/compact_adamw.h"
#include "fsdp/optim/fused_adamw.h"
#include "fsdp/optim/lbfgs.h"
#include "fsdp/optim/muon.h"
#include "fsdp/optim/muon_with_adamw.h"
#include "fsdp/optim/rebind_optimizer.h"
#include "fsdp/optim/sharded_grad_scaler.h"
#include "fsdp/parallel/activation.h"
#include "fsdp/parallel/context/context_parallel.h"
#include "fsdp/parallel/experts/expert_parallel.h"
#include "fsdp/parallel/experts/moe.h"
#include "fsdp/parallel/parameters.h"
#include "fsdp/parallel/pipeline/pipeline_stage.h"
#include "fsdp/parallel/pipeline/schedules.h"
#include "fsdp/parallel/tensor/load_plan.h"
#include "fsdp/parallel/tensor/parallelize_module.h"
#include "fsdp/parallel/tensor/styles.h"
#include "fsdp/prepare/learning_rate.h"
#include "fsdp/prepare/prepare.h"
#include "fsdp/replicate.h"
#include "fsdp/report.h"
// IWYU pragma: end_exports

#endif  // TESSERA_FSDP_H_
