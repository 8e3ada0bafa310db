"""Keys and certificates, made by `cryptography`: P-256, SHA-256, forms of RFC 5280.

Keys touch no disk. What is signed counts from `EARLIER` ago, since clocks of nodes differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from imago_operator.errors import BlockedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

EARLIER: Final = timedelta(minutes=5)
_CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
_BOTH: Final = (ExtendedKeyUsageOID.SERVER_AUTH, _CLIENT)
_NAMED: Final[dict[str, Callable[[str], x509.GeneralName]]] = {
    "DNS": x509.DNSName,
    "IP": lambda text: x509.IPAddress(ip_address(text)),
    "URI": x509.UniformResourceIdentifier,
}


@dataclass(frozen=True, slots=True)
class IssuedPair:
    """A certificate and its key, as PEM."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Validity:
    """When a certificate is made, and for how many days."""

    now: datetime
    days: int


def authority(name: str, valid: Validity) -> IssuedPair:
    """Return a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = (
        _begun(_common(name), key.public_key(), valid)
        .issuer_name(_common(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(own, critical=False)
        .sign(key, hashes.SHA256())
    )
    return IssuedPair(_pem(made), _key_pem(key))


def certificate(
    name: str, alternatives: Iterable[str], valid: Validity, signer: IssuedPair
) -> IssuedPair:
    """Return a new certificate for both sides of a connection; names as `DNS:…`, `IP:…`, `URI:…`.

    BlockedError: the signer signs nothing, or a name is none.
    """
    try:
        named = x509.SubjectAlternativeName([_alternative(each) for each in alternatives])
    except ValueError as error:
        text = f"a name for the certificate {name}: {error}"
        raise BlockedError(text, until="spec.listeners names others") from error
    return _signed(name, valid, signer, _BOTH, named)


def client_certificate(name: str, valid: Validity, signer: IssuedPair) -> IssuedPair:
    """Return a new certificate of a client, whose common name says who it is."""
    return _signed(name, valid, signer, (_CLIENT,))


def own_certificate(name: str, number: str, valid: Validity, pem: str) -> str:
    """Return a certificate of a key that nobody else has signed, for both sides.

    `number` stands in its subject, besides the name: no two are to have the same.
    """
    key = load_pem_private_key(pem.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "it was made here"
    parts = [(NameOID.COMMON_NAME, name), (NameOID.SERIAL_NUMBER, number)]
    subject = x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])
    begun = _begun(subject, key.public_key(), valid).issuer_name(subject)
    return _pem(_of_an_end(begun, _BOTH).sign(key, hashes.SHA256()))


def _signed(
    name: str,
    valid: Validity,
    signer: IssuedPair,
    usage: Sequence[x509.ObjectIdentifier],
    *more: x509.ExtensionType,
) -> IssuedPair:
    key = ec.generate_private_key(ec.SECP256R1())
    try:
        above = x509.load_pem_x509_certificate(signer.certificate.encode())
        signing = load_pem_private_key(signer.key.encode(), None)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(above.public_key())  # type: ignore[arg-type]
        builder = _begun(_common(name), key.public_key(), valid).issuer_name(above.subject)
        builder = _of_an_end(builder, usage).add_extension(issuer, critical=False)
        for extension in more:
            builder = builder.add_extension(extension, critical=False)
        made = builder.sign(signing, hashes.SHA256())  # type: ignore[arg-type]
        made.verify_directly_issued_by(above)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        text = f"the authority of {name} cannot sign: {error}"
        raise BlockedError(text[:300], until="its Secret has a certificate and its key") from error
    except InvalidSignature as error:
        text = f"the authority of {name} has a key that is not its certificate's"
        raise BlockedError(text, until="its Secret has both of one") from error
    return IssuedPair(_pem(made), _key_pem(key))


def _begun(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, valid: Validity
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid.now - EARLIER)
        .not_valid_after(valid.now + timedelta(days=valid.days))
    )


def _of_an_end(
    builder: x509.CertificateBuilder, usage: Sequence[x509.ObjectIdentifier]
) -> x509.CertificateBuilder:
    """Add what the certificate of somebody says who signs no others."""
    none = x509.BasicConstraints(ca=False, path_length=None)
    return (
        builder.add_extension(none, critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _common(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(text: str) -> x509.GeneralName:
    kind, _, value = text.partition(":")
    if kind not in _NAMED:
        raise ValueError(f"{text!a} is no name")
    return _NAMED[kind](value)


def _pem(made: x509.Certificate) -> str:
    return made.public_bytes(Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    form = PrivateFormat.PKCS8
    return key.private_bytes(Encoding.PEM, form, NoEncryption()).decode()
