#define OFP_LOOPS baseline
#include "pool/query_loops.inc"
