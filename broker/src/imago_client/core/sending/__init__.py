"""Operations that send: choice of queue, retries, idempotence, transactions, requests."""
