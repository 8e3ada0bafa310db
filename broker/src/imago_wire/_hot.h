/* CRC-32 (IEEE, as zlib has it) and big-endian stores for the compiled hot modules.
 *
 * On x86-64 with PCLMULQDQ, 64 bytes a step are folded by carry-less multiplication, after the
 * method of Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"; elsewhere
 * and for what is short, eight table look-ups take eight bytes at a time.
 */
#ifndef IMAGO_HOT_H
#define IMAGO_HOT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define IMAGO_FOLDING 1
#include <immintrin.h>
#else
#define IMAGO_FOLDING 0
#endif

static uint32_t imago_crc_table[8][256];
static int imago_crc_folds = 0, imago_crc_folds_wide = 0;

/* Call once, when the module is imported. */
static inline void imago_crc_init(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
        imago_crc_table[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++) {
            uint32_t before = imago_crc_table[k - 1][n];
            imago_crc_table[k][n] = imago_crc_table[0][before & 0xFF] ^ (before >> 8);
        }
#if IMAGO_FOLDING
    __builtin_cpu_init();
    imago_crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    imago_crc_folds_wide = imago_crc_folds && __builtin_cpu_supports("avx512f") &&
                           __builtin_cpu_supports("avx512vl") &&
                           __builtin_cpu_supports("vpclmulqdq");
#endif
}

/* The table way. Here and in the folding, crc is inverted already. */
static uint32_t imago_crc_by_table(uint32_t crc, const uint8_t *data, size_t size)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (size >= 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = imago_crc_table[7][low & 0xFF] ^ imago_crc_table[6][low >> 8 & 0xFF] ^
              imago_crc_table[5][low >> 16 & 0xFF] ^ imago_crc_table[4][low >> 24] ^
              imago_crc_table[3][high & 0xFF] ^ imago_crc_table[2][high >> 8 & 0xFF] ^
              imago_crc_table[1][high >> 16 & 0xFF] ^ imago_crc_table[0][high >> 24];
        data += 8;
        size -= 8;
    }
#endif
    while (size--)
        crc = (crc >> 8) ^ imago_crc_table[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if IMAGO_FOLDING
/* The constants are powers of x modulo the polynomial, reflected: x^(n+32) and x^(n-32) fold over
 * n bits. Here 128 bits become 64, then 32 by Barrett's reduction. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t imago_crc_reduced(__m128i x)
{
    const __m128i over_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i over_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i reduction = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_halves = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i y = _mm_clmulepi64_si128(x, over_128, 0x10);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), y);
    y = _mm_srli_si128(x, 4);
    x = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(x, low_halves), over_64, 0x00), y);
    y = _mm_clmulepi64_si128(_mm_and_si128(x, low_halves), reduction, 0x10);
    y = _mm_clmulepi64_si128(_mm_and_si128(y, low_halves), reduction, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, y), 1);
}

__attribute__((target("pclmul,sse4.1"))) static uint32_t
imago_crc_by_folding(uint32_t crc, const uint8_t *data, size_t size)
{
    const __m128i over_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i over_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i *blocks = (const __m128i *)data;
    __m128i a = _mm_loadu_si128(blocks), b = _mm_loadu_si128(blocks + 1);
    __m128i c = _mm_loadu_si128(blocks + 2), d = _mm_loadu_si128(blocks + 3);
    a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)crc));
    blocks += 4;
    size -= 64;
#define IMAGO_FOLD(into, by, next)                                        \
    into = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(into, by, 0x00), \
                                       _mm_clmulepi64_si128(into, by, 0x11)), next)
    while (size >= 64) {
        IMAGO_FOLD(a, over_512, _mm_loadu_si128(blocks));
        IMAGO_FOLD(b, over_512, _mm_loadu_si128(blocks + 1));
        IMAGO_FOLD(c, over_512, _mm_loadu_si128(blocks + 2));
        IMAGO_FOLD(d, over_512, _mm_loadu_si128(blocks + 3));
        blocks += 4;
        size -= 64;
    }
    IMAGO_FOLD(a, over_128, b);
    IMAGO_FOLD(a, over_128, c);
    IMAGO_FOLD(a, over_128, d);
    while (size >= 16) {
        IMAGO_FOLD(a, over_128, _mm_loadu_si128(blocks));
        blocks++;
        size -= 16;
    }
#undef IMAGO_FOLD
    return imago_crc_by_table(imago_crc_reduced(a), (const uint8_t *)blocks, size);
}
#endif

#if IMAGO_FOLDING
/* The same with four 64-byte registers, for 256 bytes and more. */
__attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.1"))) static uint32_t
imago_crc_by_wide_folding(uint32_t crc, const uint8_t *data, size_t size)
{
    const __m512i over_2048 = _mm512_set4_epi32(0x1, 0x322d1430, 0x1, 0x1542778a);
    const __m512i over_512 = _mm512_set4_epi32(0x1, (int)0xc6e41596, 0x1, 0x54442bd4);
    const __m128i over_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m512i a = _mm512_loadu_si512(data), b = _mm512_loadu_si512(data + 64);
    __m512i c = _mm512_loadu_si512(data + 128), d = _mm512_loadu_si512(data + 192);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    data += 256;
    size -= 256;
#define IMAGO_FOLD(into, by, next)                                              \
    into = _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(into, by, 0x00),   \
                                     _mm512_clmulepi64_epi128(into, by, 0x11), next, 0x96)
    while (size >= 256) {
        IMAGO_FOLD(a, over_2048, _mm512_loadu_si512(data));
        IMAGO_FOLD(b, over_2048, _mm512_loadu_si512(data + 64));
        IMAGO_FOLD(c, over_2048, _mm512_loadu_si512(data + 128));
        IMAGO_FOLD(d, over_2048, _mm512_loadu_si512(data + 192));
        data += 256;
        size -= 256;
    }
    IMAGO_FOLD(a, over_512, b);
    IMAGO_FOLD(a, over_512, c);
    IMAGO_FOLD(a, over_512, d);
    while (size >= 64) {
        IMAGO_FOLD(a, over_512, _mm512_loadu_si512(data));
        data += 64;
        size -= 64;
    }
#undef IMAGO_FOLD
    __m128i lanes[4];
    _mm512_storeu_si512(lanes, a);
    __m128i x = lanes[0];
    for (int lane = 1; lane < 4; lane++)
        x = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, over_128, 0x00),
                                        _mm_clmulepi64_si128(x, over_128, 0x11)), lanes[lane]);
    while (size >= 16) {
        x = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, over_128, 0x00),
                                        _mm_clmulepi64_si128(x, over_128, 0x11)),
                          _mm_loadu_si128((const __m128i *)data));
        data += 16;
        size -= 16;
    }
    return imago_crc_by_table(imago_crc_reduced(x), data, size);
}
#endif

/* CRC-32 of the bytes, continued from an unmasked value. */
static inline uint32_t imago_crc32(uint32_t crc, const uint8_t *data, size_t size)
{
    crc = ~crc;
#if IMAGO_FOLDING
    if (size >= 256 && imago_crc_folds_wide)
        return ~imago_crc_by_wide_folding(crc, data, size);
    if (size >= 64 && imago_crc_folds)
        return ~imago_crc_by_folding(crc, data, size);
#endif
    return ~imago_crc_by_table(crc, data, size);
}

/* One way of the three, for tests: 0 tables, 1 folding, 2 wide folding. -1: not here, or not for
 * so few bytes. */
static inline int64_t imago_crc32_by(int way, uint32_t crc, const uint8_t *data, size_t size)
{
    if (way == 0)
        return (uint32_t)~imago_crc_by_table(~crc, data, size);
#if IMAGO_FOLDING
    if (way == 1 && imago_crc_folds && size >= 64)
        return (uint32_t)~imago_crc_by_folding(~crc, data, size);
    if (way == 2 && imago_crc_folds_wide && size >= 256)
        return (uint32_t)~imago_crc_by_wide_folding(~crc, data, size);
#endif
    return -1;
}

static inline void imago_put16(uint8_t *to, uint16_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

static inline void imago_put32(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 24);
    to[1] = (uint8_t)(value >> 16);
    to[2] = (uint8_t)(value >> 8);
    to[3] = (uint8_t)value;
}

static inline void imago_put64(uint8_t *to, uint64_t value)
{
    imago_put32(to, (uint32_t)(value >> 32));
    imago_put32(to + 4, (uint32_t)value);
}

static inline uint32_t imago_get16(const uint8_t *from)
{
    return (uint32_t)from[0] << 8 | from[1];
}

static inline uint32_t imago_get32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static inline uint64_t imago_get64(const uint8_t *from)
{
    return (uint64_t)imago_get32(from) << 32 | imago_get32(from + 4);
}

/* Write the lowest 4 * digits bits in lower-case hexadecimal. */
static inline void imago_put_hexadecimal(uint8_t *to, uint64_t value, int digits)
{
    while (digits--) {
        to[digits] = (uint8_t) "0123456789abcdef"[value & 15];
        value >>= 4;
    }
}

static const char imago_decimal_pairs[] =
    "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748"
    "495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596"
    "979899";

/* Write a decimal number; return how many bytes it took, at most 20. */
static inline int imago_put_decimal(uint8_t *to, int64_t value)
{
    uint8_t digits[20];
    int at = 20, size = 0;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    if (value < 0)
        to[size++] = '-';
    if (rest < 10) {
        to[size] = (uint8_t)('0' + rest);
        return size + 1;
    }
    while (rest >= 100) {
        at -= 2;
        memcpy(digits + at, imago_decimal_pairs + 2 * (rest % 100), 2);
        rest /= 100;
    }
    if (rest >= 10) {
        at -= 2;
        memcpy(digits + at, imago_decimal_pairs + 2 * rest, 2);
    } else {
        digits[--at] = (uint8_t)('0' + rest);
    }
    memcpy(to + size, digits + at, (size_t)(20 - at));
    return size + 20 - at;
}

/* Whether there are two underscores in a row: every reserved name starts with them. */
static inline int imago_has_two_underscores(const uint8_t *data, size_t size)
{
    const uint8_t *end = data + size;
    while ((data = (const uint8_t *)memchr(data, '_', (size_t)(end - data)))) {
        if (++data == end)
            return 0;
        if (*data == '_')
            return 1;
    }
    return 0;
}

/* Find the value of the last property of this name (given with its 0x01); NULL: there is none. */
static inline const uint8_t *imago_find_property(const uint8_t *data, size_t size, const char *name,
                                          size_t name_size, size_t *value_size)
{
    const uint8_t *found = NULL, *end = data + size;
    while (data < end) {
        const uint8_t *stop = (const uint8_t *)memchr(data, 2, (size_t)(end - data));
        size_t part = (size_t)((stop ? stop : end) - data);
        if (part >= name_size && *data == (uint8_t)*name && !memcmp(data, name, name_size)) {
            found = data + name_size;
            *value_size = part - name_size;
        }
        data += part + 1;
    }
    return found;
}

#endif
