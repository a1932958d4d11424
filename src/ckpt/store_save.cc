#include "ckpt/store.h"

namespace fourfold {

std::unique_ptr<SaveTask> CheckpointStore::begin_save(int rank, const CheckpointMeta& meta,
                                                      SaveContent content,
                                                      SaveTask::WriteFiles write,
                                                      const SaveOptions& options) {
  return std::make_unique<SaveTask>(fs_, dir_, rank, ++saves_, meta, std::move(content),
                                    std::move(write), options, log_);
}

Result<SaveReport> CheckpointStore::save(Communicator& world, const CheckpointMeta& meta,
                                         std::span<const StateTensor> tensors,
                                         const Retention& retention) try {
  const auto agreement = agree_on_save(world, tensors);
  if (!agreement) return agreement.error();
  const RankContent content{world.rank(), meta.step, agreement.value().dense,
                            selected_regions(agreement.value(), /*selection=*/{})};
  const auto task = begin_save(
      world.rank(), meta, save_content(agreement.value(), /*selection=*/{}, nullptr).value(),
      [&](const std::string& folder) { return write_rank_files(fs_, folder, content); },
      SaveOptions{.retention = retention});
  task->finish(world);
  if (task->report().error) return *task->report().error;
  return task->report();
} catch (const Error& error) {
  return error;
}

}  // namespace fourfold
