#include "sift/elements/batches.h"

namespace offpath::sift {

namespace {

// Of time steps in one split, so that a piece's header fits a request.
constexpr std::size_t runs_of_split_max = 400;

// The size of some pieces together.
struct RowsSize {
  std::uint64_t rows = 0, long_bytes = 0, text_bytes = 0;

  [[nodiscard]] RowsSize with(const RowsView& view) const noexcept {
    return {rows + view.rows, long_bytes + view.long_bytes, text_bytes + view.text_bytes()};
  }
};

}  // namespace

std::shared_ptr<Batch> Batches::take(Element& element) const {
  if (!element.replays.empty()) return take_replay(element);
  auto batch = std::make_shared<Batch>();
  const RowForm& form = *form_.tracks->rows;
  const bool last = is_last(element.id);
  RowsSize size;
  std::size_t runs = 0;
  while (!element.pieces.empty()) {
    HeldPiece& piece = element.pieces.front();
    const RowsSize all = size.with(piece.piece.view);
    runs += piece.piece.runs.size();
    if (!batch->held.empty() && !last && runs > runs_of_split_max) break;
    if (!batch->held.empty() && last && memory_.is_bounded() &&
        TrackRun::bytes_max(form, all.rows, all.long_bytes) > memory_.run_bytes_max())
      break;
    // All rows may go to one part, whose frame is refused each time the split is tried again.
    if (!batch->held.empty() && !last && !form.fits_frame(all.text_bytes)) break;
    if (!batch->held.empty() && !last &&
        !charges_.check(charges_.of_piece(form.frame_bytes(all.rows, all.text_bytes) + form_.overhead_bytes, all.rows)))
      break;
    size = all;
    batch->charge += piece.charge;
    element.bytes -= piece.bytes;
    batch->pieces.push_back(piece.piece);
    batch->held.push_back(std::move(piece));
    element.pieces.pop_front();
  }
  return batch;
}

std::shared_ptr<Batch> Batches::take_replay(Element& element) {
  auto batch = std::make_shared<Batch>();
  Replay& replay = element.replays.front();
  batch->number = replay.number;
  batch->again = true;
  for (const PieceKey& key : replay.pieces) {
    const auto piece = replay.here.find(key);
    if (piece == replay.here.end()) continue;
    batch->charge += piece->second.charge;
    batch->pieces.push_back(piece->second.piece);
    batch->held.push_back(std::move(piece->second));
  }
  replay.here.clear();
  return batch;
}

std::uint64_t Batches::next_run_bytes(const Element& element) const {
  const RowForm& form = *form_.tracks->rows;
  RowsSize size;
  for (const HeldPiece& piece : element.pieces) {
    const RowsSize all = size.with(piece.piece.view);
    if (size.rows > 0 && TrackRun::bytes_max(form, all.rows, all.long_bytes) > memory_.run_bytes_max()) break;
    size = all;
  }
  std::uint64_t bytes = TrackRun::bytes_max(form, size.rows, size.long_bytes);
  if (memory_.is_bounded()) {  // a block may be half full; its arrays are at multiples of 64
    const std::uint64_t blocks = 2 * bytes / memory_.block_bytes() + 1;
    const std::uint64_t arrays = form.widths().size() + (form.key().is_long() ? 6 : 4);
    bytes += blocks * arrays * 64;
    if (options_.kept) bytes += kept_notes_bytes_max + blocks * TrackRun::list_bytes_max(form.key());
  }
  return BufferCache::class_bytes(bytes) + memory_.list_bytes_max(bytes, form.key());
}

void Batches::put_back(Element& element, Batch& batch) {
  if (batch.again) {
    for (HeldPiece& piece : batch.held) element.replays.front().here.emplace(piece.key, std::move(piece));
    batch.held.clear();
  }
  while (!batch.held.empty()) {
    element.bytes += batch.held.back().bytes;
    element.pieces.push_front(std::move(batch.held.back()));
    batch.held.pop_back();
  }
}

}  // namespace offpath::sift
