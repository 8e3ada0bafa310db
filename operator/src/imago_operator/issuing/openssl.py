"""Keys and certificates, made by the command `openssl`. Keys touch no disk: they are in memory."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from imago_operator.errors import BlockedError, RetryError

SECONDS_MAX: Final = 20.0
BARE: Final = "[req]\ndistinguished_name = none\n[none]\n"
"""A configuration that adds nothing of the system's."""
CURVE: Final = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


@dataclass(frozen=True, slots=True)
class IssuedPair:
    """A certificate and its key, as PEM."""

    certificate: str
    key: str = field(repr=False)


async def authority(name: str, days: int) -> IssuedPair:
    """Return a new authority."""
    key = await _run("genpkey", *CURVE)
    certificate = await _run(
        *("req", "-x509", "-new", "-config", "{bare}", "-key", "{key}"),
        *("-subj", f"/CN={name}", "-days", str(days)),
        *("-addext", "basicConstraints=critical,CA:TRUE,pathlen:0"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        *("-addext", "subjectKeyIdentifier=hash"),
        bare=BARE,
        key=key,
    )
    return IssuedPair(certificate, key)


async def certificate(name: str, alternatives: str, days: int, signer: IssuedPair) -> IssuedPair:
    """Return a new certificate for both sides of a connection."""
    usage = "serverAuth,clientAuth"
    return await _signed(name, days, signer, usage, "-addext", f"subjectAltName={alternatives}")


async def own_certificate(name: str, days: int, key: str) -> str:
    """Return a certificate of a key that nobody else has signed, for both sides."""
    return await _run(
        *("req", "-x509", "-new", "-config", "{bare}", "-key", "{key}"),
        *("-subj", f"/{name}", "-days", str(days)),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
        *("-addext", "keyUsage=critical,digitalSignature"),
        *("-addext", "extendedKeyUsage=serverAuth,clientAuth"),
        bare=BARE,
        key=key,
    )


async def client_certificate(name: str, days: int, signer: IssuedPair) -> IssuedPair:
    """Return a new certificate of a client, whose common name says who it is."""
    return await _signed(name, days, signer, "clientAuth")


async def _signed(name: str, days: int, signer: IssuedPair, usage: str, *more: str) -> IssuedPair:
    key = await _run("genpkey", *CURVE)
    made = await _run(
        *("req", "-x509", "-new", "-config", "{bare}", "-key", "{key}"),
        *("-CA", "{authority}", "-CAkey", "{authority_key}"),
        *("-subj", f"/CN={name}", "-days", str(days)),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
        *("-addext", "keyUsage=critical,digitalSignature"),
        *("-addext", f"extendedKeyUsage={usage}"),
        *("-addext", "authorityKeyIdentifier=keyid"),
        *more,
        bare=BARE,
        key=key,
        authority=signer.certificate,
        authority_key=signer.key,
    )
    return IssuedPair(made, key)


async def _run(*words: str, **inputs: str) -> str:
    """Return what openssl prints; `{name}` among the words stands for a file with that input."""
    with ExitStack() as stack:
        files: dict[str, str] = {}
        numbers = []
        for name, text in inputs.items():
            number = os.memfd_create(name)
            stack.callback(os.close, number)
            os.write(number, text.encode())
            numbers.append(number)
            files[f"{{{name}}}"] = f"/proc/self/fd/{number}"
        try:
            process = await asyncio.create_subprocess_exec(
                "openssl",
                *(files.get(word, word) for word in words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=numbers,
            )
        except FileNotFoundError as error:
            text = "the command openssl is not in the operator's image"
            raise BlockedError(text, until="it is") from error
        try:
            async with asyncio.timeout(SECONDS_MAX):
                said, wrong = await process.communicate()
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise RetryError(f"openssl {words[0]}: no end", delay_s=SECONDS_MAX) from error
    if process.returncode:
        last = (wrong.decode(errors="replace").strip().splitlines() or ["no word"])[-1]
        raise BlockedError(f"openssl {words[0]}: {last[:200]}", until="what it names is mended")
    return said.decode()
