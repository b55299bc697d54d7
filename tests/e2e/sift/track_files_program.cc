// Writes tracks to Parquet files of a directory, with small files and steps: track_files_program DIRECTORY FILE-BYTES.
// Identifiers 0 to 999 have a row of each of 7 steps; their other columns follow from both (sift/split/particles.h).
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "sift/split/particles.h"
#include "sift/tracks/track_files.h"

int main(int count, char** arguments) {
  using namespace offpath;
  using namespace offpath::sift;
  if (count != 3) return 2;
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  const auto form = TrackForm::make(particle_schema(), "id").value();
  TrackSnapshot snapshot(form, 2);
  for (std::uint64_t element = 0; element < 2; ++element) {
    std::vector<std::shared_ptr<const TrackRun>> runs;
    for (std::int64_t step = 0; step < 7; ++step) {
      std::vector<std::uint64_t> ids;
      for (std::uint64_t id = element; id < 1000; id += 2) ids.push_back(id);
      FramePtr frame = particle_frame(*form->rows, ids, step, memory);
      RowsView view = form->rows->view({frame->buffer.data(), frame->bytes}).value();
      std::vector<Piece> pieces;
      pieces.push_back({std::move(frame), std::move(view), {{step, ids.size()}}});
      runs.push_back(TrackRun::sort(form->rows, pieces, memory).value());
    }
    snapshot.add(static_cast<std::uint32_t>(element), runs);
  }
  TrackFiles part(snapshot,
                  {.path = arguments[1],
                   .writer = {"a", 1, 1},
                   .file_bytes_max = std::strtoull(arguments[2], nullptr, 10),
                   .step_bytes = 100 * std::uint64_t{form->answers->row_bytes()}},
                  memory);
  Status status;
  while (status && !part.written().all) status = part.write_more();
  if (status) status = part.publish();
  if (status) status = part.finish();
  if (status) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 1;
}
