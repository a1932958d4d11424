#include "ckpt/store.h"

namespace fourfold {

std::unique_ptr<SaveTask> CheckpointStore::begin_save(int rank, const CheckpointMeta& meta,
                                                      const SaveAgreement& agreement,
                                                      SaveTask::WriteFile write,
                                                      const SaveOptions& options) {
  return std::make_unique<SaveTask>(fs_, dir_, rank, ++saves_, meta, agreement, std::move(write),
                                    options, log_);
}

Result<SaveReport> CheckpointStore::save(Communicator& world, const CheckpointMeta& meta,
                                         std::span<const StateTensor> tensors,
                                         const Retention& retention) try {
  const auto agreement = agree_on_save(world, tensors);
  if (!agreement) return agreement.error();
  const int rank = world.rank();
  const auto task = begin_save(
      rank, meta, agreement.value(),
      [&](const std::string& folder) {
        return write_tensor_file(fs_, folder, dense_file_name(rank), agreement.value().sources,
                                 tensor_file_metadata(meta.step, rank));
      },
      SaveOptions{.retention = retention});
  task->finish(world);
  if (task->report().error) return *task->report().error;
  return task->report();
} catch (const Error& error) {
  return error;
}

}  // namespace fourfold
