// What compresses the bodies of frames: the one place that knows liblz4 and libzstd, and the one where an engine of the
// card would be chosen instead.
//
// No card's engine is chosen today, because none makes what Arrow IPC takes. DOCA Compress offers DEFLATE on
// BlueField-2 and no compression at all, only DEFLATE and LZ4 decompression, on BlueField-3; Arrow knows LZ4 frames and
// Zstandard. An engine that makes one of these is another frame::BodyCompressor, returned here when its device is
// there.
#pragma once

#include <memory>

#include "frame/body_compression.h"
#include "wire/messages/stream_messages.h"

namespace offpath::mover {

// Of any codec but none.
[[nodiscard]] std::shared_ptr<const frame::BodyCompressor> make_body_compressor(wire::Compression compression);

}  // namespace offpath::mover
