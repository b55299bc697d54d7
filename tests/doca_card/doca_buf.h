// Part of the software card (software_card.h): only the functions of this interface that doca_link uses.
#pragma once

#include <doca_error.h>
#include <cstdint>

extern "C" {
struct doca_buf;
doca_error_t doca_buf_dec_refcount(doca_buf* buffer, std::uint16_t* before);
}
